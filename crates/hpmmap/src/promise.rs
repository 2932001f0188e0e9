//! Promises of pool memory, as they are written and as they are reported.

use std::fmt;
use std::str::FromStr;

use hpmmap_base::error::{Error, Result};
use hpmmap_base::output::Column::{Number, Text};
use hpmmap_base::output::table;
use hpmmap_base::size::{Size, short};
use hpmmap_base::user_name;
use hpmmap_host::pool::{self, NodePool};
use hpmmap_host::{Root, cgroup};
use hpmmap_sys::uapi::{self, PromiseEntry};
use hpmmap_sys::{self as sys, Device, Errno, PromiseError};
use serde::Serialize;

/// A promise as it is written: `32G`, `0:16G,1:16G` by NUMA node, or `none`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Promise(Vec<sys::Promise>);

impl FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut parts: Vec<sys::Promise> = Vec::new();
        if text == "none" {
            return Ok(Self(parts));
        }
        for part in text.split(',') {
            let (node, size) = match part.split_once(':') {
                Some((node, size)) => {
                    let number = node.parse();
                    (
                        Some(number.map_err(|_| format!("'{node}' is no NUMA node"))?),
                        size,
                    )
                }
                None => (None, part),
            };
            let Size(bytes) = size
                .parse()
                .map_err(|error| format!("'{size}': {error}; or 'none'"))?;
            if bytes % uapi::BLOCK_BYTES != 0 {
                return Err(format!("{size} is not a multiple of the block size 2M"));
            }
            if parts
                .iter()
                .any(|(known, _)| *known == node || known.is_none())
            {
                return Err(format!(
                    "'{text}': one size, or one for each NUMA node (0:16G,1:16G)"
                ));
            }
            parts.push((node, bytes));
        }
        parts.retain(|(_, bytes)| *bytes != 0);
        Ok(Self(parts))
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let text = |(node, bytes): &sys::Promise| match node {
            Some(node) => format!("{} of NUMA node {node}", Size(*bytes)),
            None => Size(*bytes).to_string(),
        };
        f.write_str(&self.0.iter().map(text).collect::<Vec<_>>().join(", "))
    }
}

impl Promise {
    /// In the module's form.
    pub fn parts(&self) -> &[sys::Promise] {
        &self.0
    }

    /// The whole of it.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// A spread promise as one of the only NUMA node that the launch may use.
    pub fn on(self, nodes: &[u32]) -> Result<Self> {
        match (&self.0[..], nodes) {
            ([(None, bytes)], [node]) => Ok(Self(vec![(Some(*node), *bytes)])),
            ([(None, _)], [_, _, ..]) => Err(Error::Usage(
                "--reserve with several NUMA nodes in --node: name the size of each, such as \
                 --reserve 0:16G,1:16G"
                    .into(),
            )),
            _ => Ok(self),
        }
    }

    /// `promised` with its reductions alone; `None` if nothing becomes less.
    pub fn lowered(&self, promised: &[&Promised]) -> Option<Self> {
        let all: u64 = promised.iter().map(|one| one.promised_bytes).sum();
        if let [(None, bytes)] = self.0[..] {
            return (bytes < all).then(|| self.clone());
        }
        let left = promised.iter().filter_map(|one| {
            let node = Some(one.node);
            let own = self.0.iter().find(|(own, _)| *own == node)?;
            Some((node, own.1.min(one.promised_bytes)))
        });
        let left = Self(left.collect());
        (left.bytes() < all).then_some(left)
    }

    /// Is this promised, and nothing else?
    pub fn holds(&self, promised: &[&Promised]) -> bool {
        match self.0[..] {
            [(None, bytes)] => promised.iter().map(|one| one.promised_bytes).sum::<u64>() == bytes,
            _ => {
                let has = |(node, bytes): &sys::Promise| {
                    let mut promised = promised.iter();
                    promised.any(|one| Some(one.node) == *node && one.promised_bytes == *bytes)
                };
                promised.len() == self.0.len() && self.0.iter().all(has)
            }
        }
    }
}

/// Why the module refused to promise this to `whom`, with the pools as they are.
pub fn refused(whom: &str, promise: &Promise, error: PromiseError, nodes: &[NodePool]) -> Error {
    let here = |pool: &&NodePool| error.node.is_none_or(|node| node == pool.node);
    let sum = |value: fn(&NodePool) -> u64| nodes.iter().filter(here).map(value).sum::<u64>();
    let place = match error.node {
        Some(node) => format!("of NUMA node {node}"),
        None => "of all pools together".into(),
    };
    Error::Failed(match error.errno {
        Errno::ENOSPC => format!(
            "{promise} cannot be promised to {whom}: at most {} {place} can be, where {} are free \
             and {} of that are promised (see: hpmmap pool limit --list)",
            Size(error.room_bytes),
            short(sum(|pool| pool.free_bytes)),
            short(sum(|pool| pool.promised_bytes)),
        ),
        Errno::ENXIO => format!(
            "{promise} cannot be promised to {whom}: a NUMA node has no pool (see: hpmmap pool list)"
        ),
        other => format!("cannot promise {promise} to {whom}: {}", other.desc()),
    })
}

/// A promise of memory of a NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Promised {
    /// "user", "cgroup" or "launch".
    pub kind: &'static str,
    /// User, also of a launch.
    pub uid: Option<u32>,
    /// Name of the user, path of the cgroup unless it is gone, or number of the launch.
    pub name: Option<String>,
    pub cgroup_id: Option<u64>,
    /// NUMA node.
    pub node: u32,
    pub promised_bytes: u64,
    /// Memory held of it, which may be more.
    pub held_bytes: u64,
}

impl Promised {
    /// Adds names to an entry of the module.
    pub fn new(root: &Root, entry: &PromiseEntry) -> Self {
        let (kind, uid, cgroup_id, name) = if entry.flags & uapi::LIMIT_F_CGROUP != 0 {
            ("cgroup", None, Some(entry.id), cgroup::path(root, entry.id))
        } else if entry.flags & uapi::PROMISE_F_LAUNCH != 0 {
            ("launch", Some(entry.uid), None, Some(entry.id.to_string()))
        } else {
            ("user", Some(entry.uid), None, Some(user_name(entry.uid)))
        };
        Self {
            kind,
            uid,
            name,
            cgroup_id,
            node: entry.node.try_into().unwrap_or(0),
            promised_bytes: entry.promised_bytes,
            held_bytes: entry.held_bytes,
        }
    }

    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("(gone)")
    }
}

/// The promises that concern this user; for root all of them.
pub fn list(root: &Root, device: &Device) -> Result<Vec<Promised>> {
    let entries = device
        .promise_list()
        .map_err(|errno| Error::Failed(format!("cannot read the promises: {}", errno.desc())))?;
    let mut promised: Vec<Promised> = entries.iter().map(|one| Promised::new(root, one)).collect();
    promised.sort_by(|a, b| (a.kind, &a.name, a.node).cmp(&(b.kind, &b.name, b.node)));
    Ok(promised)
}

/// Those to whom memory is promised, in one line: for memory that cannot leave the pools.
pub fn whose(root: &Root, device: &Device) -> Option<String> {
    let text = |one: &Promised| {
        format!(
            "{} of NUMA node {} to {} {}",
            short(one.promised_bytes),
            one.node,
            one.kind,
            one.name()
        )
    };
    let promised: Vec<String> = list(root, device).ok()?.iter().map(text).collect();
    (!promised.is_empty()).then(|| format!("promised: {}", promised.join(", ")))
}

/// That promises are broken, if they are.
pub fn broken(root: &Root) -> Vec<String> {
    let nodes = pool::nodes(root).unwrap_or_default();
    let broken = nodes.iter().filter(|node| node.broken_bytes != 0);
    let text = |node: &NodePool| {
        format!(
            "NUMA node {} has {} less free than is promised, because of memory errors",
            node.node,
            short(node.broken_bytes)
        )
    };
    broken.map(text).collect()
}

/// The promises as a table.
pub fn text(promised: &[Promised]) -> String {
    table(
        &[
            Text("PROMISED TO"),
            Text("NAME"),
            Number("NODE"),
            Number("PROMISED"),
            Number("HELD"),
        ],
        promised.iter().map(|one| {
            vec![
                one.kind.to_string(),
                one.name().to_string(),
                one.node.to_string(),
                short(one.promised_bytes),
                short(one.held_bytes),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use hpmmap_host::fixture::Fixture;

    use super::*;

    fn promise(text: &str) -> std::result::Result<Promise, String> {
        text.parse()
    }

    #[test]
    fn a_size_or_one_for_each_node() {
        for (text, shown) in [
            ("32G", "32G"),
            ("1:32G", "32G of NUMA node 1"),
            ("0:16G,1:2M", "16G of NUMA node 0, 2M of NUMA node 1"),
            ("0:0,1:2M", "2M of NUMA node 1"),
            ("none", "none"),
            ("0", "none"),
        ] {
            assert_eq!(promise(text).unwrap().to_string(), shown, "{text}");
        }
        assert_eq!(
            promise("0:16G,1:2M").unwrap().bytes(),
            (16 << 30) + (2 << 20)
        );
        for (text, says) in [
            ("3M", "3M is not a multiple"),
            ("x:2M", "'x' is no NUMA node"),
            ("0:2M,0:4M", "one for each NUMA node"),
            ("2M,1:4M", "one for each NUMA node"),
            ("much", "'much': expected bytes"),
            ("", "'': expected bytes"),
        ] {
            let error = promise(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_spread_promise_goes_to_the_node_of_the_launch() {
        let on = |text, nodes: &[u32]| promise(text).unwrap().on(nodes);
        assert_eq!(on("32G", &[1]).unwrap(), promise("1:32G").unwrap());
        assert_eq!(on("32G", &[]).unwrap(), promise("32G").unwrap());
        assert_eq!(on("0:2M", &[0, 1]).unwrap(), promise("0:2M").unwrap());
        assert_eq!(on("32G", &[0, 1]).unwrap_err().exit_code(), 2);
    }

    fn promised(flags: u32, node: i32, promised_bytes: u64) -> Promised {
        let entry = PromiseEntry {
            flags,
            id: 7,
            node,
            promised_bytes,
            held_bytes: 2 << 20,
            ..Default::default()
        };
        Promised::new(&Fixture::new().root(), &entry)
    }

    #[test]
    fn promises_are_named_and_compared() {
        let all = [
            promised(0, 0, 4 << 20),
            promised(uapi::LIMIT_F_CGROUP, 1, 4 << 20),
            promised(uapi::PROMISE_F_LAUNCH, 1, 4 << 20),
        ];
        let names = all.each_ref().map(|one| (one.kind, one.name()));
        assert_eq!(
            names,
            [("user", "root"), ("cgroup", "(gone)"), ("launch", "7")]
        );
        let (one, both) = (vec![&all[0]], vec![&all[0], &all[1]]);
        for (text, promised, holds) in [
            ("4M", &one, true),
            ("8M", &both, true),
            ("0:4M", &one, true),
            ("0:4M", &both, false),
            ("0:4M,1:4M", &both, true),
            ("0:4M,1:2M", &both, false),
            ("none", &one, false),
            ("none", &vec![], true),
        ] {
            assert_eq!(promise(text).unwrap().holds(promised), holds, "{text}");
        }
        assert!(text(&all).lines().nth(1).unwrap().contains("root"));
    }

    #[test]
    fn what_becomes_less_is_known_before_anything_becomes_more() {
        let all = [promised(0, 0, 4 << 20), promised(0, 1, 8 << 20)];
        let all: Vec<&Promised> = all.iter().collect();
        for (text, left) in [
            ("0:2M,1:16M", Some("0:2M,1:8M")),
            ("1:16M", Some("1:8M")),
            ("0:4M,1:8M,2:2M", None),
            ("none", Some("none")),
            ("10M", Some("10M")),
            ("12M", None),
        ] {
            let left = left.map(|text| promise(text).unwrap());
            assert_eq!(promise(text).unwrap().lowered(&all), left, "{text}");
        }
        assert_eq!(promise("none").unwrap().lowered(&[]), None);
    }

    #[test]
    fn a_refusal_has_the_figures() {
        let fixture = Fixture::new();
        fixture.module();
        fixture.node_pool(0, 8 << 30, 8 << 30, 0, 0);
        fixture.node_pool(1, 8 << 30, 4 << 30, 0, 0);
        fixture.write(
            "sys/kernel/hpmmap/nodes/node1/promised_bytes",
            "1073741824\n",
        );
        let nodes = pool::nodes(&fixture.root()).unwrap();
        let error = |node| PromiseError {
            errno: Errno::ENOSPC,
            node,
            room_bytes: 3 << 30,
        };
        let said = |text, node| {
            refused("cgroup /a", &promise(text).unwrap(), error(node), &nodes).to_string()
        };
        assert_eq!(
            said("1:4G", Some(1)),
            "4G of NUMA node 1 cannot be promised to cgroup /a: at most 3G of NUMA node 1 can be, \
             where 4G are free and 1G of that are promised (see: hpmmap pool limit --list)"
        );
        assert!(said("16G", None).contains("at most 3G of all pools together can be, where 12G"));
        assert!(broken(&fixture.root()).is_empty());
        fixture.write("sys/kernel/hpmmap/nodes/node1/broken_bytes", "2097152\n");
        assert!(broken(&fixture.root())[0].starts_with("NUMA node 1 has 2M less free"));
    }
}
