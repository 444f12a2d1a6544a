//! Empty: this project only names a source, see ../Makefile.
