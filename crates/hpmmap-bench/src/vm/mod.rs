//! The same work in virtual machines: nested and shadow paging, and the host's memory.

pub mod kvm;
pub mod machine;
pub mod plan;
pub mod report;
pub mod result;
