#!/bin/bash
# A partition where systemd owns the tree of cgroups: it is a slice that systemd makes, keeps through its reloads, and
# ends. systemd is process 1 of a PID namespace here, with the guest's cgroups and little else to start.
# machine: partition
# pool: 256M
# takes: 60
# timeout: 400
# last: yes
# tier: all  partition makes the same changes, and make nodes NODES=trixie:partition has a whole systemd
# paths: crates/hpmmap/src/partition/cgroup.rs
. "$(dirname "$0")/../guest/lib.sh"

[ -x /lib/systemd/systemd ] && command -v dbus-daemon busctl >/dev/null || skip "systemd or dbus-daemon is not installed"
guest=$HPMMAP_ROOT/tests/vm/guest
export PYTHONDONTWRITEBYTECODE=1
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug

units=/run/systemd/system
mkdir -p $units /run/dbus
cat >$units/dbus.socket <<END
[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/dbus/system_bus_socket
END
cat >$units/dbus.service <<END
[Unit]
DefaultDependencies=no
Requires=dbus.socket
After=dbus.socket
[Service]
Type=notify
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation
END
cat >$units/few.target <<END
[Unit]
DefaultDependencies=no
Requires=dbus.service
After=dbus.service
END
unshare --pid --fork --kill-child --mount --mount-proc env -i container=guest PATH="$PATH" \
	/lib/systemd/systemd --system --unit=few.target --log-target=console >/tmp/systemd 2>&1 &
namespace=$!
answers() { busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.DBus.Peer Ping; }
within 60 answers || fail "systemd does not answer: $(tail -n 20 /tmp/systemd)"
# Of another PID namespace systemctl is not answered.
mkdir -p /tmp/bin
printf '#!/bin/sh\nexec nsenter --target %s --pid --mount /usr/bin/systemctl "$@"\n' "$(pgrep -P $namespace)" >/tmp/bin/systemctl
chmod +x /tmp/bin/systemctl
PATH=/tmp/bin:$PATH
python3 "$guest/host_state.py" /tmp/before

hpmmap partition create quiet --cpus 2-3
dir=/sys/fs/cgroup/hpmmap_quiet.slice
is_whole() {
	[ "$(cat $dir/cpuset.cpus.partition)" = isolated ] && [ "$(cat $dir/cpuset.cpus)" = 2-3 ] && [ -e $dir/hpmmap_quiet-tasks.slice/cpuset.cpus ]
}
is_whole || fail "the partition is $(cat $dir/cpuset.cpus.partition)"
unit() { systemctl show hpmmap_quiet.slice --property "$1" --value; }
[ "$(unit ActiveState) $(unit AllowedCPUs)" = "active 2-3" ] || fail "the slice is $(unit ActiveState), with CPUs $(unit AllowedCPUs)"
hpmmap run --partition quiet -- sleep 1000 & job=$!
in_partition() { grep -q . $dir/hpmmap_quiet-tasks.slice/cgroup.procs; }
within 20 in_partition || fail "the job does not come"
systemctl daemon-reload
is_whole || fail "after a reload the partition is $(cat $dir/cpuset.cpus.partition), with CPUs $(cat $dir/cpuset.cpus)"
# Other units come and go, and have CPUs of their own.
busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager StartTransientUnit \
	"ssa(sv)a(sa(sv))" other.slice fail 1 AllowedCPUs ay 1 1 0 >/dev/null
within 10 test -e /sys/fs/cgroup/other.slice/cpuset.cpus || fail "another slice does not come"
is_whole || fail "beside another slice the partition is $(cat $dir/cpuset.cpus.partition)"
in_partition || fail "the job is elsewhere"
got=$(OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 hpmmap run --partition quiet --per-core -- cat /proc/self/cgroup /proc/self/status)
[[ $got == *"0::/hpmmap_quiet.slice/rank_1"*"Cpus_allowed_list:"$'\t'"3"$'\n'* ]] || fail "a rank is in $got"
hpmmap partition delete quiet --kill
wait $job && fail "the job was not killed"
systemctl stop other.slice
[ "$(unit ActiveState)" = inactive ] && [ ! -e $dir ] || fail "the slice is $(unit ActiveState)"
python3 "$guest/host_state.py" /tmp/after /tmp/before || fail "not everything is as before"
python3 "$guest/partition_kills.py" 8 "${HPMMAP_SEED:-1}" /tmp/before

# unshare(1) ignores SIGTERM, and its child dies with it.
kill -KILL $namespace
wait $namespace || true
rm -r $units
