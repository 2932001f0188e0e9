//! Reserved pages: which of their numbers a change concerns. These come back as all files do.

use std::iter;

use hpmmap_base::error::Result;
use hpmmap_host::{Root, node};

use super::Prepared;
use super::undo::Setting;
use crate::machine::{hugetlb_at, hugetlb_sizes, nr_hugepages};
use crate::plan::LARGE_PAGE;

/// The numbers of reserved pages of a size on each node.
fn of_nodes(root: &Root, page: u64) -> Vec<String> {
    let nodes = node::with_memory(root).unwrap_or_default();
    let of_node = |node| nr_hugepages(page, Some(node));
    nodes.into_iter().map(of_node).collect()
}

impl Prepared {
    /// Reserves so many pages of a size in all, as far as they can be had. Those of each
    /// node come back, however Linux divides the new ones.
    pub fn reserve_hugepages(&mut self, page: u64, pages: u64) -> Result<()> {
        let of_nodes = of_nodes(&self.root, page);
        self.write_with(&nr_hugepages(page, None), &pages.to_string(), of_nodes)
    }

    /// Reserves so many more huge pages on a node, as far as they can be had.
    pub fn reserve_more(&mut self, node: u32, pages: u64) -> Result<()> {
        let dir = hugetlb_at(&self.root, LARGE_PAGE, Some(node));
        let path = format!("{dir}/nr_hugepages");
        let there: u64 = self.root.read_number(&path)?;
        self.write(&path, &(there + pages).to_string())
    }

    /// The counts of reserved pages of all sizes. A pool that grows can only lower them: Linux frees
    /// those in memory that it gives up, if nobody uses them.
    pub(super) fn hugepages(&self) -> Vec<Setting> {
        let all = |page| iter::once(nr_hugepages(page, None)).chain(of_nodes(&self.root, page));
        let paths = hugetlb_sizes(&self.root).into_iter().flat_map(all);
        let setting = |path: String| self.setting(&path, Some("0"));
        paths.filter_map(setting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::undone;
    use super::super::undo::{Undo, tests::setting};
    use super::*;
    use crate::machine::tests::fixture;
    use crate::plan::GIGABYTE;

    #[test]
    fn each_node_gets_its_huge_pages_back() {
        let fixture = fixture();
        fixture.nodes("0-1");
        let of_node = |node| nr_hugepages(LARGE_PAGE, Some(node));
        let all = nr_hugepages(LARGE_PAGE, None);
        let read = |path: &str| fixture.root().read(path).unwrap();
        let now = || [read(&all), read(&of_node(0)), read(&of_node(1))];
        let set = |values: [&str; 3]| {
            fixture.write(&all, values[0]);
            fixture.write(&of_node(0), values[1]);
            fixture.write(&of_node(1), values[2]);
        };
        set(["5\n", "5\n", "0\n"]);
        let mut prepared = Prepared::new(&fixture.root());
        prepared.reserve_hugepages(LARGE_PAGE, 64).unwrap();
        assert_eq!(read(&all), "64");
        assert!(prepared.set_back().is_empty());
        assert_eq!(now(), ["5", "5", "0"]);
        // As Linux divides them.
        let file = |path: &str, old, reached| Setting {
            asked: None,
            ..setting(path, old, reached)
        };
        let change = || {
            vec![Undo::Write(vec![
                setting(&all, "5", "64"),
                file(&of_node(0), "5", "32"),
                file(&of_node(1), "0", "32"),
            ])]
        };
        set(["64\n", "32\n", "32\n"]);
        assert!(undone(&fixture, change()).is_empty());
        assert_eq!(now(), ["5", "5", "0"]);
        // Others have changed those of one node.
        set(["64\n", "20\n", "44\n"]);
        assert_eq!(undone(&fixture, change()).len(), 1);
        assert_eq!(now(), ["64", "20", "44"]);
    }

    #[test]
    fn huge_pages_that_a_growing_pool_has_freed_come_back() {
        let fixture = fixture();
        fixture.nodes("0");
        let of_node = nr_hugepages(LARGE_PAGE, Some(0));
        let all = nr_hugepages(LARGE_PAGE, None);
        let gigabytes = nr_hugepages(GIGABYTE, None);
        assert_eq!(
            of_node,
            "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
        );
        let set = |pages: &str| {
            fixture.write(&all, pages);
            fixture.write(&of_node, pages);
        };
        let read = |path: &str| fixture.root().read(path).unwrap();
        set("9");
        fixture.write(&gigabytes, "1");
        let mut prepared = Prepared::new(&fixture.root());
        let before = prepared.hugepages();
        assert_eq!(before.len(), 3);
        prepared.remember(Undo::Write(before.clone())).unwrap();
        set("6");
        prepared.complete_files(before);
        let file = |path: &str| setting(path, "6", "20");
        let reserved = Undo::Write(vec![file(&all), file(&of_node)]);
        prepared.undo.push(reserved);
        // Another pool has freed some of the new ones. Gigabytes are as they were: others may
        // change them.
        set("17");
        fixture.write(&gigabytes, "2");
        assert!(prepared.set_back().is_empty());
        assert_eq!((read(&all), read(&of_node)), ("9".into(), "9".into()));
        assert_eq!(read(&gigabytes), "2");
    }

    #[test]
    fn huge_pages_of_one_node_are_reserved_and_come_back() {
        let fixture = fixture();
        let all = nr_hugepages(LARGE_PAGE, None);
        let of_node = nr_hugepages(LARGE_PAGE, Some(1));
        fixture.write(&all, "5");
        fixture.write(&of_node, "3");
        let read = || [&all, &of_node].map(|path| fixture.root().read(path).unwrap());
        let mut prepared = Prepared::new(&fixture.root());
        prepared.reserve_more(1, 4).unwrap();
        assert_eq!(read(), ["5", "7"]);
        // There is no such node: the kernel is without NUMA.
        prepared.reserve_more(0, 4).unwrap();
        assert_eq!(read(), ["9", "7"]);
        assert!(prepared.set_back().is_empty());
        assert_eq!(read(), ["5", "3"]);
    }
}
