//! Error numbers of the system, for those who must tell one [`io::Error`](std::io::Error) from another.

pub use libc::{
    EBADF, ECONNREFUSED, EFAULT, EINVAL, EIO, EMSGSIZE, ENETDOWN, ENETUNREACH, ENOBUFS, ENODEV, ENOMEM,
    ENOPROTOOPT, ENOTSOCK, EOPNOTSUPP, EPERM,
};
