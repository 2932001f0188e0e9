//! Partitions on the simulated machine, whose command may die after any change.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use hpmmap_base::error::{Error, Result};

use super::machine::{Machine, format_cpus, parse_cpus};
use super::simulated::{CGROUP, Kernel, Simulated, WORKQUEUES};
use super::values::{HALT_POLL, RT_RUNTIME, parse_mask};
use super::*;

fn request(name: &str, cpus: &str) -> Request {
    Request {
        name: name.into(),
        cpus: parse_cpus(cpus).unwrap(),
        halt_poll_ns: (name == "a").then_some(0),
        unthrottled: name == "a",
        ..Request::default()
    }
}

fn none(_: &Partition) -> Result<()> {
    Ok(())
}

fn unlocked() -> Result<()> {
    Ok(())
}

fn made(machine: &Simulated, request: &Request) -> Result<Partition> {
    create(machine, request, &none).map(|(one, _)| one)
}

/// Of these machines, 6.1 alone and 6.12 with systemd.
const OLD: usize = 0;
const SYSTEMD: usize = 3;
const KERNELS: [Kernel; 2] = [Kernel::V6_1, Kernel::V6_12];

/// On both kernels, with and without systemd.
fn machines() -> impl Iterator<Item = Simulated> {
    KERNELS.into_iter().flat_map(|kernel| {
        [false, true].map(|systemd| {
            let machine = Simulated::new(kernel);
            if systemd {
                fs::create_dir_all(machine.root.join("run/systemd/system")).unwrap();
            }
            machine
        })
    })
}

#[test]
fn everything_leaves_and_comes_back() {
    for machine in machines() {
        let before = machine.snapshot();
        let one = made(&machine, &request("a", "2-3")).unwrap();
        assert_eq!(one.phase, Phase::Ready);
        let now = machine.snapshot();
        let value = |path: &str| now[path].as_str();
        assert_eq!(value("proc/irq/24/smp_affinity_list"), "0-1,4-5");
        assert_eq!(value("proc/irq/25/smp_affinity_list"), "0-1,4-5");
        assert_eq!(value("proc/irq/26/smp_affinity_list"), "1");
        assert_eq!(value("proc/irq/27/smp_affinity_list"), "0");
        assert_eq!(
            parse_mask(value("proc/irq/default_smp_affinity")),
            parse_mask("33")
        );
        assert_eq!(parse_mask(value(WORKQUEUES)), parse_mask("33"));
        assert_eq!(value("proc/sys/kernel/watchdog_cpumask"), "0-1,4-5");
        let has_fair = machine.kernel == Kernel::V6_12;
        let fair = |cpu: u32| format!("sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime");
        if has_fair {
            assert_eq!([value(&fair(1)), value(&fair(2))], ["50000000", "0"]);
        }
        assert_eq!(
            value("sys/devices/system/machinecheck/machinecheck0/ignore_ce"),
            "1"
        );
        assert_eq!([value(HALT_POLL), value(RT_RUNTIME)], ["0", "-1"]);
        assert_eq!(now["irqbalance"], "0000000c");
        assert_eq!(
            value(&format!("{}/cpuset.cpus.partition", one.cgroup)),
            "isolated"
        );
        let cpus = |task| format_cpus(&machine.cpus(task));
        assert_eq!(
            [cpus(2), cpus(4), cpus(101), cpus(102)],
            ["0-1,4-5", "4-5", "0", "1"]
        );
        let stay = values::interrupts(&machine.root, &one.cpus);
        assert_eq!(stay.len(), 1, "{stay:?}");
        // A thread of the kernel that comes later, and a task that goes elsewhere.
        machine.task(5, 0x0020_0000, "0-5");
        machine.set_affinity(102, &Cpus::from([5])).unwrap();
        made(&machine, &request("b", "4")).unwrap();
        assert_eq!(cpus(5), "0-1,5");
        delete(&machine, "b").unwrap();
        fs::remove_dir_all(machine.root.join("proc/5")).unwrap();
        delete(&machine, "a").unwrap();
        assert!(machine.is_clean());
        assert_eq!(cpus(102), "5");
        machine.set_cpus(102, &Cpus::from([1, 2, 3]));
        assert_eq!(machine.snapshot(), before);
    }
}

#[test]
fn the_kernel_is_asked_for_the_kind() {
    let machine = Simulated::new(Kernel::V6_12);
    let before = machine.snapshot();
    let balanced = Request {
        balance: true,
        user: Some(1000),
        ..request("a", "2-3")
    };
    let one = made(&machine, &balanced).unwrap();
    assert_eq!(cgroup::state(&machine.root, &one).as_deref(), Some("root"));
    let given = machine.given.borrow().clone();
    for path in ["", "/cgroup.procs", "/tasks", "/tasks/cgroup.procs"] {
        assert!(
            given.contains(&(format!("{}{path}", one.cgroup), 1000)),
            "{given:?}"
        );
    }
    // Beside one that the kernel keeps workqueues off itself.
    made(&machine, &request("b", "4")).unwrap();
    delete(&machine, "b").unwrap();
    delete(&machine, "a").unwrap();
    assert_eq!(machine.snapshot(), before);
}

#[test]
fn cgroups_that_its_user_has_made_go_with_it() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let machine = Simulated::new(Kernel::V6_12);
    let before = machine.snapshot();
    let for_user = Request {
        user: Some(1000),
        ..request("a", "2-3")
    };
    let one = made(&machine, &for_user).unwrap();
    let value = |file: &str| machine.root.read(format!("{}/{file}", one.cgroup)).unwrap();
    assert_eq!(value("cgroup.max.depth"), "8");
    // No UTF-8, and one in it.
    let odd = Path::new(&one.cgroup).join(OsStr::from_bytes(b"\xff"));
    let inner = odd.join("inner");
    fs::create_dir_all(machine.root.join(&inner)).unwrap();
    for dir in [&odd, &inner] {
        fs::write(machine.root.join(dir).join("cgroup.procs"), "").unwrap();
    }
    fs::write(machine.root.join(&inner).join("cgroup.procs"), "77\n").unwrap();
    assert_eq!(processes(&machine.root, &one), [77]);
    fs::write(machine.root.join(&inner).join("cgroup.procs"), "").unwrap();
    delete(&machine, "a").unwrap();
    assert_eq!(machine.snapshot(), before);
    // The user cannot make new ones meanwhile.
    let given = machine.given.borrow();
    for dir in [Path::new(&one.cgroup), &odd, &inner] {
        assert!(given.contains(&(dir.display().to_string(), 0)), "{given:?}");
    }
}

#[test]
fn a_command_may_die_after_each_change() {
    for kind in [OLD, SYSTEMD] {
        for changes in 0.. {
            let machine = machines().nth(kind).unwrap();
            let before = machine.snapshot();
            machine.die_after(changes);
            let created = made(&machine, &request("a", "2-3"));
            let died = machine.revive();
            // The next command may die, too.
            machine.die_after(changes / 2);
            let _ = recover(&machine);
            machine.revive();
            recover(&machine).unwrap();
            if died {
                assert!(created.is_err());
                assert_eq!(machine.snapshot(), before, "after {changes} changes");
                assert!(machine.is_clean(), "after {changes} changes");
                continue;
            }
            assert!(changes > 20, "{changes}");
            break;
        }
    }
}

#[test]
fn a_deletion_may_die_after_each_change() {
    for kind in [OLD, SYSTEMD] {
        for changes in 0.. {
            let machine = machines().nth(kind).unwrap();
            let before = machine.snapshot();
            made(&machine, &request("a", "2-3")).unwrap();
            machine.die_after(changes);
            let _ = delete(&machine, "a");
            let died = machine.revive();
            machine.die_after(changes / 2);
            let _ = recover(&machine);
            machine.revive();
            if find(&machine.root, "a").is_ok() {
                delete(&machine, "a").unwrap();
            }
            assert_eq!(machine.snapshot(), before, "after {changes} changes");
            assert!(machine.is_clean());
            if !died {
                break;
            }
        }
    }
}

#[test]
fn beside_a_partition_another_one_may_die() {
    for kind in [OLD, SYSTEMD] {
        for changes in 0.. {
            let machine = machines().nth(kind).unwrap();
            let before = machine.snapshot();
            made(&machine, &request("a", "2")).unwrap();
            let with_a = machine.snapshot();
            machine.die_after(changes);
            let _ = made(&machine, &request("b", "3-4"));
            let died = machine.revive();
            recover(&machine).unwrap();
            if died {
                assert_eq!(machine.snapshot(), with_a, "after {changes} changes");
            }
            delete(&machine, "a").unwrap();
            if !died {
                delete(&machine, "b").unwrap();
            }
            assert_eq!(machine.snapshot(), before, "after {changes} changes");
            if !died {
                break;
            }
        }
    }
}

#[test]
fn two_partitions_go_in_either_order() {
    for kind in 0..4 {
        let machine = || machines().nth(kind).unwrap();
        let (a, b) = (request("a", "1-2"), request("b", "3,5"));
        let alone = |request: &Request| {
            let machine = machine();
            made(&machine, request).unwrap();
            machine.snapshot()
        };
        for (first, last) in [(&a, &b), (&b, &a)] {
            let machine = machine();
            let before = machine.snapshot();
            made(&machine, &a).unwrap();
            made(&machine, &b).unwrap();
            delete(&machine, &first.name).unwrap();
            let mut now = machine.snapshot();
            let mut alone = alone(last);
            for all in [&mut now, &mut alone] {
                for value in all.values_mut() {
                    // "33" and "00000033" are the same.
                    *value = value.trim_start_matches('0').to_string();
                }
            }
            assert_eq!(now, alone);
            delete(&machine, &last.name).unwrap();
            assert_eq!(machine.snapshot(), before);
        }
    }
}

#[test]
fn partitions_below_a_cgroup_leave_nothing_there() {
    let machine = Simulated::new(Kernel::V6_12);
    machine.make_cgroup(&format!("{CGROUP}/slurm"));
    machine.make_cgroup(&format!("{CGROUP}/slurm/job_1"));
    fs::create_dir_all(machine.root.join("run/systemd/system")).unwrap();
    let before = machine.snapshot();
    let below = |name: &str, cpus: &str| Request {
        under: "/slurm/job_1".into(),
        ..request(name, cpus)
    };
    for changes in 0.. {
        machine.die_after(changes);
        let created = made(&machine, &below("a", "2"));
        let died = machine.revive();
        if !died {
            assert_eq!(created.unwrap().path(), "/slurm/job_1/hpmmap_a");
            break;
        }
        recover(&machine).unwrap();
        assert_eq!(machine.snapshot(), before, "after {changes} changes");
    }
    made(&machine, &below("b", "3-4")).unwrap();
    let exclusive = |dir: &str| {
        machine
            .root
            .read(format!("{CGROUP}/{dir}/cpuset.cpus.exclusive"))
    };
    assert_eq!(exclusive("slurm").unwrap(), "2-4");
    assert_eq!(exclusive("slurm/job_1/hpmmap_b").unwrap(), "3-4");
    delete(&machine, "a").unwrap();
    assert_eq!(exclusive("slurm/job_1").unwrap(), "3-4");
    delete(&machine, "b").unwrap();
    assert_eq!(machine.snapshot(), before);
    let machine = Simulated::new(Kernel::V6_1);
    machine.make_cgroup(&format!("{CGROUP}/slurm/job_1"));
    let error = made(&machine, &below("a", "2")).unwrap_err().to_string();
    assert!(error.contains("6.12"), "{error}");
}

#[test]
fn what_cannot_be_made_is_refused_by_name() {
    let machine = Simulated::new(Kernel::V6_1);
    let refused = |name: &str, cpus: &str, words: &str| {
        let error = made(&machine, &request(name, cpus))
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    };
    made(&machine, &request("a", "2-3")).unwrap();
    machine.make_cgroup(&format!("{CGROUP}/other"));
    machine
        .fixture
        .write(&format!("{CGROUP}/other/cpuset.cpus.partition"), "root\n");
    machine
        .fixture
        .write(&format!("{CGROUP}/other/cpuset.cpus.effective"), "5\n");
    let with_a = machine.snapshot();
    refused("b", "3-4", "CPUs 3 belong to partition 'a'");
    refused(
        "b",
        "4-5",
        "CPUs 5 belong to the partition of cgroup /other",
    );
    refused("a", "4", "there is a partition 'a' already, with CPUs 2-3");
    refused("b", "0-1,4-5", "belong to");
    fs::remove_dir_all(machine.root.join(CGROUP).join("other")).unwrap();
    refused("b", "0-1,4-5", "leaves no CPU for everything else");
    refused("b", "6", "CPUs 6 are not online; online are 0-5");
    refused("b-c", "4", "is no name of a partition");
    refused("../b", "4", "is no name of a partition");
    machine.make_cgroup(&format!("{CGROUP}/other"));
    machine
        .fixture
        .write(&format!("{CGROUP}/other/cpuset.cpus.partition"), "root\n");
    machine
        .fixture
        .write(&format!("{CGROUP}/other/cpuset.cpus.effective"), "5\n");
    assert_eq!(machine.snapshot(), with_a);
    let error = delete(&machine, "b").unwrap_err().to_string();
    assert_eq!(error, "there is no partition 'b'; there are: a");
    // Memory that is not there.
    let before = machine.snapshot();
    let error = create(&machine, &request("b", "4"), &|_| {
        Err(Error::Failed("no memory".into()))
    });
    assert_eq!(error.unwrap_err().to_string(), "no memory");
    assert_eq!(machine.snapshot(), before);
    // A partition with processes stays whole.
    machine
        .fixture
        .write(&format!("{CGROUP}/hpmmap_a/tasks/cgroup.procs"), "77\n");
    assert!(delete(&machine, "a").is_err());
    assert_eq!(all(&machine.root).unwrap()[0].phase, Phase::Deleting);
    machine
        .fixture
        .write(&format!("{CGROUP}/hpmmap_a/tasks/cgroup.procs"), "");
    delete(&machine, "a").unwrap();
    assert!(machine.is_clean());
}

/// With the cgroup of a batch job that has CPUs.
fn with_a_job(cpus: &str) -> Simulated {
    let machine = Simulated::new(Kernel::V6_12);
    for dir in ["slurm", "slurm/job_1"] {
        machine.make_cgroup(&format!("{CGROUP}/{dir}"));
        let file = format!("{CGROUP}/{dir}/cgroup.subtree_control");
        machine.fixture.write(&file, "cpuset\n");
    }
    for file in ["cpuset.cpus", "cpuset.cpus.effective"] {
        let file = format!("{CGROUP}/slurm/job_1/{file}");
        machine.fixture.write(&file, &format!("{cpus}\n"));
    }
    machine
}

fn of_job() -> Request {
    Request {
        under: "/slurm/job_1".into(),
        adopts: true,
        ..request("a", "")
    }
}

#[test]
fn a_cgroup_that_is_adopted_is_what_it_was_in_the_end() {
    for changes in 0.. {
        let machine = with_a_job("2-3");
        let before = machine.snapshot();
        machine.die_after(changes);
        let created = made(&machine, &of_job());
        let died = machine.revive();
        if let Ok(one) = &created {
            assert_eq!(
                (one.path(), format_cpus(&one.cpus)),
                ("/slurm/job_1", "2-3".into())
            );
            assert_eq!(
                cgroup::state(&machine.root, one).as_deref(),
                Some("isolated")
            );
        }
        machine.die_after(changes);
        let _ = recover(&machine);
        let _ = delete(&machine, "a");
        machine.revive();
        recover(&machine).unwrap();
        let _ = delete(&machine, "a");
        assert_eq!(machine.snapshot(), before, "after {changes} changes");
        assert!(machine.is_clean(), "after {changes} changes");
        if !died {
            assert!(changes > 20, "{changes}");
            break;
        }
    }
}

#[test]
fn an_adopted_cgroup_may_end_at_any_time() {
    let ended = || {
        let machine = with_a_job("2-3");
        let dir = format!("{CGROUP}/slurm/job_1");
        fs::remove_dir_all(machine.root.join(&dir)).unwrap();
        machine.snapshot()
    };
    for changes in 0.. {
        let machine = with_a_job("2-3");
        let one = made(&machine, &of_job()).unwrap();
        machine.remove_cgroup(&one.cgroup).unwrap();
        machine.die_after(changes);
        let _ = recover(&machine);
        let died = machine.revive();
        recover(&machine).unwrap();
        assert_eq!(machine.snapshot(), ended(), "after {changes} changes");
        assert!(machine.is_clean());
        if !died {
            break;
        }
    }
    // The next step of the job has a cgroup with the same path.
    let machine = with_a_job("2-3");
    let one = made(&machine, &of_job()).unwrap();
    machine.remove_cgroup(&one.cgroup).unwrap();
    machine.make_cgroup(&one.cgroup);
    let file = format!("{}/cpuset.cpus", one.cgroup);
    machine.fixture.write(&file, "2-3\n");
    made(&machine, &of_job()).unwrap();
    let again = made(&machine, &of_job()).unwrap_err().to_string();
    assert!(
        again.contains("there is a partition 'a' already"),
        "{again}"
    );
}

#[test]
fn affinities_that_tasks_have_set_meanwhile_stay() {
    let cpus = |machine: &Simulated, task| format_cpus(&machine.cpus(task));
    for machine in machines() {
        made(&machine, &request("a", "2-3")).unwrap();
        machine.set_affinity(102, &Cpus::from([5])).unwrap();
        // For a new pool.
        settle(&machine).unwrap();
        assert_eq!(cpus(&machine, 102), "5");
        assert_eq!(cpus(&machine, 4), "4-5");
        delete(&machine, "a").unwrap();
        assert_eq!(cpus(&machine, 102), "5");
    }
    // The kernel has given the CPUs back, and the thread of a NUMA node all of them.
    let machine = with_a_job("2-3");
    let one = made(&machine, &of_job()).unwrap();
    machine.set_affinity(102, &Cpus::from([5])).unwrap();
    machine.remove_cgroup(&one.cgroup).unwrap();
    assert_eq!(cpus(&machine, 4), "0-5");
    settle(&machine).unwrap();
    assert!(machine.is_clean());
    let now = [4, 102, 103].map(|task| cpus(&machine, task));
    assert_eq!(now, ["2-5", "5", "2"]);
}

#[test]
fn a_cgroup_that_cannot_be_adopted_is_told_why() {
    let why = |cpus: &str, change: &dyn Fn(&Simulated)| {
        let machine = with_a_job(cpus);
        change(&machine);
        let before = machine.snapshot();
        let error = made(&machine, &of_job()).unwrap_err().to_string();
        assert_eq!(machine.snapshot(), before);
        error
    };
    let has = |error: String, words: &str| assert!(error.contains(words), "{error}");
    has(why("", &|_| ()), "ConstrainCores=yes");
    has(why("0-5", &|_| ()), "leaves no CPU for everything else");
    let file = |path: &'static str, text: &'static str| {
        move |machine: &Simulated| machine.fixture.write(path, text)
    };
    has(
        why(
            "2-3",
            &file(
                "sys/devices/system/cpu/cpu3/topology/thread_siblings_list",
                "3,5\n",
            ),
        ),
        "CPU 3 shares its core with CPUs 5",
    );
    has(
        why(
            "2-3",
            &file("sys/fs/cgroup/slurm/job_1/cpuset.cpus.exclusive", "2-3\n"),
        ),
        "cpuset.cpus.exclusive of another program",
    );
    has(
        why("2-3", &|machine| {
            machine
                .fixture
                .remove("sys/fs/cgroup/slurm/job_1/cpuset.cpus")
        }),
        "does not have the controller cpuset on",
    );
    has(
        why("2-3", &|machine| {
            made(machine, &request("other", "3")).unwrap();
        }),
        "CPUs 3 belong to partition 'other'",
    );
    let machine = with_a_job("2-3");
    let one = made(&machine, &of_job()).unwrap();
    let error = enter::enter(&machine, &one.name, 77, None, unlocked, &|_, _, _| Ok(()));
    let error = error.unwrap_err();
    has(error.to_string(), "whose owner starts its programs");
}

#[test]
fn a_cgroup_that_others_use_keeps_its_controller() {
    let machine = Simulated::new(Kernel::V6_1);
    made(&machine, &request("a", "2-3")).unwrap();
    machine.make_cgroup(&format!("{CGROUP}/other"));
    machine
        .fixture
        .write(&format!("{CGROUP}/other/cpuset.cpus"), "4\n");
    delete(&machine, "a").unwrap();
    let controllers = machine
        .root
        .read(format!("{CGROUP}/cgroup.subtree_control"))
        .unwrap();
    assert_eq!(controllers, "cpuset cpu memory");
    assert!(machine.is_clean());
}

#[test]
fn a_process_that_asks_is_moved_if_it_is_of_the_user() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let machine = Simulated::new(Kernel::V6_1);
    let own = nix::unistd::Uid::effective().as_raw();
    let for_user = Request {
        user: Some(own),
        ..request("a", "2-3")
    };
    let one = made(&machine, &for_user).unwrap();
    let process = std::process::id();
    let asked = |uid: u32, line: &str| {
        let status = format!("Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        machine
            .fixture
            .write(&format!("proc/{process}/status"), &status);
        let (mut asker, mut server) = UnixStream::pair().unwrap();
        asker.write_all(line.as_bytes()).unwrap();
        enter::serve(&machine, &mut server, unlocked, &|_, _, _| Ok(())).unwrap();
        drop(server);
        let mut answer = String::new();
        asker.read_to_string(&mut answer).unwrap();
        answer
    };
    let procs = |name: &str| {
        let path = format!("{}/{name}/cgroup.procs", one.cgroup);
        machine.root.read(path).unwrap()
    };
    // Its number is another user's by now.
    let answer = asked(own + 1, "a\n");
    assert!(
        answer.contains("no permission to run in partition 'a'"),
        "{answer}"
    );
    assert_eq!(procs("tasks"), "");
    assert_eq!(asked(own, "a\n"), "ok\n");
    assert_eq!(procs("tasks"), process.to_string());
    assert_eq!(asked(own, "a 1 2\n"), "ok\n");
    assert_eq!(procs("rank_1"), process.to_string());
    // The answer may have been lost.
    assert_eq!(asked(own, "a 1 2\n"), "ok\n");
    let other = format!("{}/rank_1/cgroup.procs", one.cgroup);
    machine.fixture.write(&other, "1\n");
    for (line, words) in [
        ("a 1 2\n", "has processes already"),
        ("a 2 2\n", "has no CPU of its own"),
        ("a 1\n", "is no request"),
        ("a -1 2\n", "is no request"),
        ("../a\n", "there is no partition '../a'"),
        ("\n", "is no request"),
    ] {
        let answer = asked(own, line);
        assert!(answer.contains(words), "{line}: {answer}");
        assert_eq!(answer.matches('\n').count(), 1, "{answer}");
    }
    // One that connects and says nothing.
    let (mut asker, mut server) = UnixStream::pair().unwrap();
    enter::serve(&machine, &mut server, unlocked, &|_, _, _| Ok(())).unwrap();
    drop(server);
    let mut answer = String::new();
    asker.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("no request within 2 seconds"), "{answer}");
}

#[test]
fn a_number_may_be_another_users_by_the_time_of_the_move() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let machine = Simulated::new(Kernel::V6_12);
    let own = nix::unistd::Uid::effective().as_raw();
    let with_memory = Request {
        user: Some(own),
        memory_bytes: 8 << 20,
        ..request("a", "2-3")
    };
    let one = made(&machine, &with_memory).unwrap();
    let is_of = |uid: u32| {
        let path = format!("proc/{}/status", std::process::id());
        let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        machine.fixture.write(&path, &status);
    };
    let (mut asker, mut server) = UnixStream::pair().unwrap();
    asker.write_all(b"a 0 2\n").unwrap();
    is_of(own);
    let share = |_: &Partition, _: &str, _| {
        is_of(own + 1);
        Ok(())
    };
    enter::serve(&machine, &mut server, unlocked, &share).unwrap();
    drop(server);
    let mut answer = String::new();
    asker.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("no permission"), "{answer}");
    let procs = format!("{}/rank_0/cgroup.procs", one.cgroup);
    assert_eq!(machine.root.read(procs).unwrap(), "");
    // The partition itself may be another one, or go, by the time of the lock.
    is_of(own);
    let (mut asker, mut server) = UnixStream::pair().unwrap();
    asker.write_all(b"a\n").unwrap();
    let goes = Partition {
        phase: Phase::Deleting,
        ..one.clone()
    };
    let lock = || goes.save(&machine);
    enter::serve(&machine, &mut server, lock, &|_, _, _| Ok(())).unwrap();
    drop(server);
    answer.clear();
    asker.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("is not ready"), "{answer}");
    let procs = format!("{}/tasks/cgroup.procs", one.cgroup);
    assert_eq!(machine.root.read(procs).unwrap(), "");
}

#[test]
fn ranks_have_cgroups_of_their_own() {
    use super::enter::{Rank, enter};
    let machine = Simulated::new(Kernel::V6_12);
    let with_memory = Request {
        memory_bytes: 8 << 20,
        ..request("a", "2-5")
    };
    let one = made(&machine, &with_memory).unwrap();
    let shares = RefCell::new(Vec::new());
    let share = |_: &Partition, cgroup: &str, rank: Rank| {
        shares.borrow_mut().push((cgroup.to_string(), rank));
        Ok(())
    };
    enter(&machine, "a", 77, None, unlocked, &share).unwrap();
    let rank = |process, index, of| {
        let rank = Some(Rank { index, of });
        enter(&machine, "a", process, rank, unlocked, &share)
    };
    rank(78, 1, 2).unwrap();
    let value = |path: &str| machine.root.read(format!("{}/{path}", one.cgroup)).unwrap();
    assert_eq!(value("tasks/cgroup.procs"), "77");
    assert_eq!(value("rank_1/cgroup.procs"), "78");
    assert_eq!(value("rank_1/cpuset.cpus"), "4-5");
    assert_eq!(
        *shares.borrow(),
        [(format!("{}/rank_1", one.cgroup), Rank { index: 1, of: 2 })]
    );
    let error = rank(79, 1, 4).unwrap_err().to_string();
    assert!(
        error.contains("rank 1 of partition 'a' has processes already (78)"),
        "{error}"
    );
    assert!(rank(79, 4, 5).is_err());
    // One that has had no answer asks again.
    rank(78, 1, 2).unwrap();
    let half = Partition {
        phase: Phase::Making,
        ..one.clone()
    };
    half.save(&machine).unwrap();
    let error = enter(&machine, "a", 77, None, unlocked, &share)
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not ready"), "{error}");
}

#[test]
fn ranks_that_have_ended_keep_nothing_from_the_next_launch() {
    use super::enter::{Rank, enter};
    let machine = Simulated::new(Kernel::V6_12);
    let with_memory = Request {
        memory_bytes: 8 << 20,
        ..request("a", "2-5")
    };
    let one = made(&machine, &with_memory).unwrap();
    let left = RefCell::new(Vec::new());
    let share = |one: &Partition, cgroup: &str, _| {
        let others = ranks(&machine.root, one).into_iter();
        *left.borrow_mut() = others.filter(|other| other != cgroup).collect();
        Ok(())
    };
    let rank = |process, index, of| {
        let rank = Some(Rank { index, of });
        enter(&machine, "a", process, rank, unlocked, &share)
    };
    let procs = |dir: &str, text: &str| {
        let path = format!("{}/{dir}/cgroup.procs", one.cgroup);
        machine.fixture.write(&path, text);
    };
    for index in 0..4 {
        rank(80 + index as u32, index, 4).unwrap();
    }
    assert_eq!(left.borrow().len(), 3);
    // Two have ended; a process of a third is in a cgroup that its user has made.
    machine.make_cgroup(&format!("{}/rank_3/inner", one.cgroup));
    procs("rank_3/inner", "83\n");
    for dir in ["rank_0", "rank_1", "rank_3"] {
        procs(dir, "");
    }
    rank(84, 0, 2).unwrap();
    let dirs = |all: &[usize]| -> Vec<String> {
        let path = |index| format!("{}/rank_{index}", one.cgroup);
        all.iter().map(path).collect()
    };
    assert_eq!(*left.borrow(), dirs(&[2, 3]));
    assert!(rank(85, 3, 4).is_err());
    procs("rank_3/inner", "");
    rank(85, 1, 2).unwrap();
    assert_eq!(*left.borrow(), dirs(&[0, 2]));
}

#[test]
fn the_longest_halt_polling_holds() {
    let machine = Simulated::new(Kernel::V6_12);
    let before = machine.snapshot();
    let polls = |name, cpus, ns| Request {
        halt_poll_ns: Some(ns),
        unthrottled: false,
        ..request(name, cpus)
    };
    let now = || machine.root.read(HALT_POLL).unwrap();
    made(&machine, &polls("b", "2", 7)).unwrap();
    made(&machine, &polls("c", "3", 9)).unwrap();
    assert_eq!(now(), "9");
    delete(&machine, "c").unwrap();
    assert_eq!(
        (now(), machine.root.read(RT_RUNTIME).unwrap()),
        ("7".into(), "950000".into())
    );
    delete(&machine, "b").unwrap();
    assert_eq!(machine.snapshot(), before);
    machine.fixture.remove(HALT_POLL);
    let error = made(&machine, &polls("b", "2", 7)).unwrap_err().to_string();
    assert!(error.contains("modprobe kvm_intel"), "{error}");
}
