package netpoll

import "syscall"

// SyscallConn implements syscall.Conn.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c}, nil }

type rawConn struct{ conn *Conn }

// Control implements syscall.RawConn.
func (r rawConn) Control(use func(fd uintptr)) error {
	r.conn.mu.RLock()
	defer r.conn.mu.RUnlock()
	if err := r.conn.checkOpen(); err != nil {
		return r.conn.wrapError("look", err)
	}
	use(uintptr(r.conn.fd))
	return nil
}

// Read implements syscall.RawConn.
func (r rawConn) Read(try func(fd uintptr) bool) error {
	_, err := r.conn.doInTurn(&r.conn.reading, retryOnFalse(try))
	return r.conn.wrapError("read", err)
}

// Write implements syscall.RawConn.
func (r rawConn) Write(try func(fd uintptr) bool) error {
	_, err := r.conn.doInTurn(&r.conn.writing, retryOnFalse(try))
	if err == nil {
		r.conn.onSent(1)
	}
	return r.conn.wrapError("write", err)
}

func retryOnFalse(try func(fd uintptr) bool) func(int) (int, error) {
	return func(fd int) (int, error) {
		if try(uintptr(fd)) {
			return 0, nil
		}
		return 0, syscall.EAGAIN
	}
}
