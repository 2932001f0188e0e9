# Containers of podman, root's and a user's: the device by CDI, the user that is charged, limits, and
# no leftovers of killed containers.
# files: hold.c
# timeout: 1800

step 'a node with images of its own files'
mkdir -p /tmp/c && cd /tmp/c || fail 'no directory'
gcc -O2 -Wall -o hold /srv/hold.c || fail 'hold does not compile'

tree() { # DIRECTORY PROGRAM...: a root file system of programs, and of the libraries they need
	local directory=$1 program
	shift
	mkdir -p "$directory"/{tmp,dev,proc,sys,etc}
	for program; do
		ldd "$program" | grep -o '/[^ ]*' | xargs cp -L --parents -t "$directory" "$program" || fail "no $program"
	done
}
tree all /bin/sh /bin/sleep /bin/cat /bin/ls /usr/bin/id /usr/bin/hpmmap
cp hold all/usr/bin
tree bare /bin/sleep /bin/true
cp hold bare/bin/hold
cp hold bare/bin/marked
hpmmap mark bare/bin/marked || fail 'mark'
tar -C all -cf all.tar . && tar -C bare -cf bare.tar . && chmod -R a+rX /tmp/c

alice=$(id -u alice)
# Her own systemd makes the cgroups of her containers.
loginctl enable-linger alice
within 60 [ -S "/run/user/$alice/bus" ] || fail "alice has no bus: $(systemctl status --no-pager "user@$alice")"
export HOME=/root
rootless() { # COMMAND...: as alice, with what a login has
	runuser -u alice -- env -C /home/alice HOME=/home/alice "XDG_RUNTIME_DIR=/run/user/$alice" \
		"DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$alice/bus" "$@"
}
for who in '' rootless; do
	for image in all bare; do
		$who podman import "/tmp/c/$image.tar" $image >/dev/null || fail "import of $image"
	done
	$who podman info --format '{{.Version.Version}} {{.Host.OCIRuntime.Name}} {{.Host.CgroupManager}} {{.Store.GraphDriverName}}'
done

pod() { # WHO OPTIONS...: a container that ends before this does
	local who=$1
	shift
	[ "$who" = root ] && who=
	$who timeout 300 podman run --rm --pull never --network none "$@" 2>&1
}
with='--device hpmmap.io/pool=all'
group=$(stat -c %g /dev/hpmmap)
held() { echo $((($(cat $POOL) - $(cat ${POOL%total_bytes}free_bytes)) / MIB)); }
holds() { [ "$(held)" -ge "$1" ]; }
is_free() { no_jobs && [ "$(held)" = 0 ]; }

step 'without the device'
status=0
said=$(pod root all hpmmap run hold 40 0) || status=$?
[ $status = 125 ] || fail "status $status instead of 125: $said"
echo "$said"
[[ $(echo "$said" | wc -l) = 1 && $said == *'--device hpmmap.io/pool=all'* ]] || fail 'it is not one line that says what to do'

step 'the specification'
[ ! -e /etc/cdi ] || fail 'somebody else has made /etc/cdi'
hpmmap cdi --output /etc/cdi/hpmmap.json || fail cdi
cat /etc/cdi/hpmmap.json

# unseen WHO OPTIONS...: while this runs the pool has all.
unseen() {
	begins "$@" || fail "it does not start: $(cat $log)"
	[ "$(held)" = 0 ] && no_jobs || fail "it has $(held)M"
	wait $job || fail "it ended with status $?: $(cat $log)"
}
log=/tmp/said
begun() { grep -qx held $log || ! kill -0 $job 2>/dev/null; }
# begins WHO OPTIONS...: a container that has some memory by then, and ends by itself.
begins() {
	pod "$@" >$log &
	job=$!
	within 90 begun
	grep -qx held $log
}
# seen WHO CHARGED MIB OPTIONS...: while this runs the pool has less, and it is charged to that user.
seen() {
	local who=$1 charged=$2 mib=$3
	shift 3
	begins "$who" "$@" || fail "it does not start: $(cat $log)"
	holds "$mib" || fail "the pool has given $(held)M instead of ${mib}M"
	[ "$(of user "$charged")" -ge $((mib * MIB)) ] || fail "$charged is charged for $(of user "$charged"): $(hpmmap pool limit --list)"
	grep ^uid /proc/hpmmap | sort -u
	wait $job || fail "it ended with status $?: $(cat $log)"
	within 20 is_free || fail "$(held)M are not free: $(hpmmap status)"
}
# The memory charged to a user or cgroup that the metrics name.
of() { # KIND NAME
	local value
	value=$(hpmmap status --prometheus | sed -n "s|^hpmmap_limit_held_bytes{kind=\"$1\",name=\"$2\"} ||p")
	echo "${value:-0}"
}

step "root's containers"
seen root root 100 $with all hpmmap run --strict hold 100 8
# A user other than root in the container is the host user with that number, and needs the group.
seen root alice 60 $with --user "$alice" --group-add "$group" all hpmmap run --strict hold 60 8
said=$(pod root $with --user "$alice" all hpmmap run hold 40 0) && fail 'who is not of the group had the device'
echo "$said"
[[ $(echo "$said" | wc -l) = 1 && $said == *--group-add* ]] || fail 'it is not one line that says what to do'
said=$(pod root $with --user "$alice" --group-add "$group" all hpmmap run --strict hold 200 0) && fail "the limit of alice does not hold: $said"
[[ $said == *'Cannot allocate memory'* ]] || fail "it said: $said"
seen root root 60 $with bare marked 60 8
unseen root bare marked 60 8
seen root root 100 $with --memory 64M all hpmmap run --strict hold 100 8
pod root $with all hpmmap run --report=/tmp/report hold 40 1 || fail 'with a report'
pod root $with all hpmmap status || fail 'status'

step "a user's containers"
keep="$with --group-add keep-groups"
seen rootless alice 100 $keep all hpmmap run --strict hold 100 8
seen rootless alice 40 $keep --user 1000 all hpmmap run --strict hold 40 8
seen rootless alice 40 $keep --userns keep-id all hpmmap run --strict hold 40 8
said=$(pod rootless $keep --user 1000 all hpmmap run --strict hold 200 0) && fail "the limit of alice does not hold: $said"
said=$(pod rootless $with all hpmmap run hold 40 0) && fail 'without keep-groups'
echo "$said"
[[ $(echo "$said" | wc -l) = 1 && $said == *keep-groups* ]] || fail 'it is not one line that says what to do'
said=$(pod rootless all hpmmap run hold 40 0)
echo "$said"
seen rootless alice 60 $keep bare marked 60 8
# Who may is decided by the machine's device, whatever the container has.
seen rootless alice 40 --group-add keep-groups bare marked 40 8
unseen rootless bare marked 40 8

# stays WHO NAME OPTIONS...: a container that goes on.
stays() {
	local who=$1 name=$2
	shift 2
	[ "$who" = root ] && who=
	$who podman run -d --name "$name" --pull never --network none "$@" >$log 2>&1 || fail "run: $(cat $log)"
}
cgroup_of() { # WHO NAME
	local who=$1
	[ "$who" = root ] && who=
	cut -d: -f3 "/proc/$($who podman inspect -f '{{.State.Pid}}' "$2")/cgroup"
}

step 'limits of cgroups'
for who in root rootless; do
	as=$who options=$keep
	[ $who = root ] && as= options=$with
	stays $who limited $options all sleep 1000
	cgroup=$(cgroup_of $who limited)
	echo "$who: $cgroup"
	hpmmap pool limit --cgroup "$cgroup" --size 64M || fail 'limit'
	$as podman exec limited hpmmap run --strict hold 40 0 || fail '40M of 64M'
	said=$($as podman exec limited hpmmap run --strict hold 100 0 2>&1) && fail '100M of 64M were had'
	echo "$said"
	$as podman exec limited hpmmap run hold 100 0 || fail '100M of 64M, with ordinary memory'
	$as podman exec -d limited hpmmap run --strict hold 40 1000
	within 60 holds 40 || fail 'it does not start'
	hpmmap pool limit --list
	[ "$(of cgroup "$cgroup")" -ge $((40 * MIB)) ] || fail "the cgroup is charged for $(of cgroup "$cgroup")"
	$as podman stats --no-stream limited || fail stats
	$as podman pause limited || fail pause
	holds 40 || fail 'what is paused has given memory back'
	timeout 60 hpmmap status || fail 'status, while it is paused'
	$as podman stats --no-stream limited || fail 'stats, while it is paused'
	$as podman unpause limited || fail unpause
	sleep 2
	registered || fail 'it has ended'
	$as podman rm -f -t 0 limited || fail 'rm'
	within 30 is_free || fail "$(held)M are not free: $(hpmmap status)"
done
systemctl start hpc.slice
hpmmap pool limit --cgroup /hpc.slice --size 64M || fail 'limit of a slice'
said=$(pod root $with --cgroup-parent hpc.slice all hpmmap run --strict hold 100 0) && fail "100M of 64M of the slice were had: $said"
pod root $with --cgroup-parent hpc.slice all hpmmap run --strict hold 40 0 || fail '40M of 64M of the slice'

step 'killed in the middle'
for who in root rootless; do
	as=$who options=$keep
	[ $who = root ] && as= options=$with
	for how in 'kill' 'rm -f -t 0' 'stop -t 0'; do
		stays $who busy $options all sh -c 'hpmmap run --strict hold 60 & hpmmap run --strict hold 40'
		within 60 holds 60 || fail "it does not start: $($as podman logs busy)"
		sleep 1
		$as podman $how busy >/dev/null || fail "podman $how"
		within 30 is_free || fail "after $how $(held)M are not free: $(hpmmap status)"
		$as podman rm -f -t 0 --ignore busy >/dev/null
	done
done
echo 'nothing left'
