#!/bin/bash
# Hosts for tests, as network namespaces with host names and homes of their own, and the daemons of real launch engines.
#
# The first process (`fleet.sh up N`) is process 1 of a PID namespace. Everything else lives below it: all processes, mounts and
# networks end with it, and it ends when its standard input does, so when the test ends, however that happens. /run is a private
# file system, so names and addresses are the same in every fleet and two fleets never meet.
#
# The conductor's host is `ctl` (10.77.0.254 on a bridge), the others are h1 … hN (10.77.0.N, eth0). Their homes and temporary
# folders are empty file systems. $PLUMB, the program under test, is at /run/fleet/bin/plumb.
set -euo pipefail
F=/run/fleet

# Runs a program on a host.
on() { "$F/bin/on" "$@"; }

await() { # until a command succeeds, for a minute at most
  for _ in $(seq 3000); do
    "$@" && return
    sleep .02
  done
  echo "not within a minute: $*" >&2
  return 1
}

up() {
  hostname ctl
  # A fresh /sys shows this network's interfaces. Container engines need the control groups of the old one.
  mount --make-rprivate /
  mount -t tmpfs none /mnt
  mkdir /mnt/cgroup
  mount --rbind /sys/fs/cgroup /mnt/cgroup
  mount -t sysfs none /sys
  mount --rbind /mnt/cgroup /sys/fs/cgroup || true
  umount -l /mnt
  mount -t tmpfs none /run
  mkdir -p "$F/bin" /run/sshd
  # The machine's own configurations stay as they are, and are not read.
  for folder in /etc/ssh /etc/slurm ~/.ssh; do [ ! -d "$folder" ] || mount -t tmpfs none "$folder"; done
  # Without its symbols it is a third as large, and is sent along in a third of the time.
  strip -o "$F/bin/plumb" "$PLUMB" 2>/dev/null || { touch "$F/bin/plumb" && mount --bind "$PLUMB" "$F/bin/plumb"; }

  # What plans may name as a command for a host, and what mpirun and mpiexec run in the place of ssh.
  cat > "$F/bin/on" <<'ON'
#!/bin/bash
exec nsenter --target "$(< "/run/fleet/$1.pid")" --net --uts --mount -- "${@:2}"
ON
  cat > "$F/bin/agent" <<'AGENT'
#!/bin/bash
while [[ $1 == -* ]]; do case $1 in -l | -o | -p) shift ;; esac; shift; done
exec /run/fleet/bin/on "$1" sh -c "${*:2}"
AGENT
  chmod 755 "$F/bin/on" "$F/bin/agent"

  ip link set lo up
  ip link add br0 type bridge
  ip address add 10.77.0.254/24 dev br0
  ip link set br0 up
  for i in $(seq "$1"); do
    printf 'netns add h%d\nlink add p%d up master br0 type veth peer name eth0 netns h%d\n' "$i" "$i" "$i"
  done | ip -batch -
  for i in $(seq "$1"); do
    nsenter --net="/run/netns/h$i" unshare --uts --mount bash "$0" host "$i" <&- >&- &
  done
  for i in $(seq "$1"); do await test -s "$F/h$i.pid"; done
  echo ready
  # Process 1 reaps what others leave; the shell does that while it reads.
  while read -r _; do :; done
}

# A host's first process: it holds the namespaces.
host() {
  hostname "h$1"
  mount -t sysfs none /sys
  for folder in "$HOME" /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 none "$folder"; done
  printf 'address add 10.77.0.%d/24 dev eth0\nlink set eth0 up\nlink set lo up\n' "$1" | ip -batch -
  echo $$ > "$F/.h$1.pid"
  mv "$F/.h$1.pid" "$F/h$1.pid"
  cd /
  exec -a "h$1" sleep infinity
}

hosts() { ls "$F"/h*.pid | sed 's/.*\/\(h[0-9]*\).pid/\1/' | sort -V; }

# An sshd on every host, and the configuration of `ssh` for the conductor's user. $1: first lines of sshd's.
sshd() {
  mkdir -p "$F/ssh"
  ssh-keygen -q -t ed25519 -N '' -f "$F/ssh/id"
  ssh-keygen -q -t ed25519 -N '' -f "$F/ssh/hostkey"
  echo "h*,10.77.0.* $(cut -d' ' -f1,2 "$F/ssh/hostkey.pub")" > "$F/ssh/known_hosts"
  # The default key exchange costs a tenth of a second of CPU time more.
  cat > /etc/ssh/ssh_config <<CONFIG
Host *
  User root
  IdentityFile $F/ssh/id
  IdentitiesOnly yes
  UserKnownHostsFile $F/ssh/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  ConnectTimeout 5
  KexAlgorithms curve25519-sha256
CONFIG
  local i
  for i in $(hosts); do printf 'Host %s\n  HostName 10.77.0.%s\n' "$i" "${i#h}"; done >> /etc/ssh/ssh_config
  cat > "$F/ssh/sshd_config" <<CONFIG
${1:-}
HostKey $F/ssh/hostkey
PidFile none
AuthorizedKeysFile $F/ssh/id.pub
StrictModes no
UsePAM no
PasswordAuthentication no
SetEnv PATH=$F/bin:/usr/bin:/bin:/usr/sbin:/sbin
UseDNS no
CONFIG
  for i in $(hosts); do on "$i" /usr/sbin/sshd -f "$F/ssh/sshd_config" -E "$F/ssh/$i.log"; done
  for i in $(hosts); do await grep -qs listening "$F/ssh/$i.log"; done
}

# A controller here and a slurmd on every host; they trust each other without keys, which their network allows.
slurm() {
  mkdir -p "$F/slurm/state"
  # Without this line slurmd looks for a control group file system, and ends.
  echo 'CgroupPlugin=cgroup/v1' > /etc/slurm/cgroup.conf
  local i n
  n=$(hosts | wc -l)
  cat > /etc/slurm/slurm.conf <<CONFIG
ClusterName=fleet
SlurmctldHost=ctl(10.77.0.254)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
StateSaveLocation=$F/slurm/state
SlurmdSpoolDir=$F/slurm/spool.%n
SlurmdPidFile=$F/slurm/slurmd.%n.pid
SlurmctldPidFile=$F/slurm/slurmctld.pid
SlurmctldLogFile=$F/slurm/slurmctld.log
SlurmdLogFile=$F/slurm/slurmd.%n.log
PlugStackConfig=/dev/null
NodeName=h[1-$n] NodeAddr=10.77.0.[1-$n] CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=FORCE:4
CONFIG
  slurmctld -i
  for i in $(hosts); do
    mkdir "$F/slurm/spool.$i"
    on "$i" slurmd
  done
  await sh -c "[ \"\$(sinfo -h -t idle -o %D 2>/dev/null)\" = $n ]"
}

# Storage of its own for podman, a configuration with which it runs where limits may not be raised and both versions of control
# groups are mounted, and an image of the program with its libraries.
podman() {
  mkdir -p "$F/podman"
  cp -a /etc/containers "$F/podman/etc"
  mount --bind "$F/podman/etc" /etc/containers
  cat > /etc/containers/containers.conf <<CONFIG
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
CONFIG
  printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/podman/root"\nrunroot = "%s/podman/run"\n' "$F" "$F" > /etc/containers/storage.conf
  local library
  for library in $(ldd "$PLUMB" | grep -oE '/[^ ]+'); do install -D "$library" "$F/podman/image$library"; done
  install -D "$F/bin/plumb" "$F/podman/image/usr/bin/plumb"
  tar -C "$F/podman/image" -c . | command podman import --quiet --change 'ENTRYPOINT ["/usr/bin/plumb"]' - plumb
}

"$@"
