//! Every system call of the project, each behind one thin safe wrapper.
//!
//! There is no policy here: no retry, no default, no choice. A wrapper takes values, makes one call (or the few
//! that belong together), and gives values or an [`io::Error`](std::io::Error) back. Nothing blocks unless its
//! name says `wait`. Linux only.

pub mod clock;
pub mod epoll;
pub mod errno;
pub mod eventfd;
pub mod interface;
pub mod membarrier;
pub mod packet;
pub mod poll;
pub mod process;
pub mod sctp;
pub mod timerfd;
pub mod tipc;
pub mod udp;
pub mod unix;

mod call;
