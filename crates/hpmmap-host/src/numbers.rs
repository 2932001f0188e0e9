//! Directories of sysfs whose files hold a number each.

/// Defines a struct whose members are the files of a directory, each a decimal number, and its
/// reader.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident: $dir:literal { $($(#[$file_doc:meta])* $file:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
        pub struct $name {
            $($(#[$file_doc])* pub $file: u64,)*
        }

        impl $name {
            fn read(root: &crate::Root) -> crate::Result<Self> {
                Ok(Self {
                    $($file: root.read_number(concat!($dir, "/", stringify!($file)))?,)*
                })
            }
        }
    };
}

pub(crate) use numbers;
