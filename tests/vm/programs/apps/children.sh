# Children by the thousand, one after another and side by side; for any shell.
# Arguments: rounds, and what to execute (a program that prints nothing).
rounds=$1
program=$2

# Subshells: fork, and the child ends.
i=0 sum=0
while [ $i -lt "$rounds" ]; do
	(exit $((i % 50)))
	sum=$((sum + $?))
	i=$((i + 1))
done
echo "subshells: $i, sum of status $sum"

# Output of children that the shell reads.
i=0 text=
while [ $i -lt $((rounds / 4)) ]; do
	text=$(echo "${#text}-$i")
	i=$((i + 1))
done
echo "substitutions: $i, the last $text"

# Programs: fork, exec, exit.
i=0
while [ $i -lt $((rounds / 2)) ]; do
	"$program" || exit 1
	i=$((i + 1))
done
echo "programs: $i"

# Pipelines, and jobs in the background whose variables are their own.
i=0
while [ $i -lt $((rounds / 20)) ]; do
	text=$(echo "$i" | while read -r n; do echo $((n * n)); done | { read -r n; echo "<$n>"; })
	{ i=changed; exit 3; } &
	wait $! || [ $? = 3 ] || exit 1
	i=$((i + 1))
done
echo "pipelines and jobs: $i, the last $text"
