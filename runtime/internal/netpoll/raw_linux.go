package netpoll

import "syscall"

// SyscallConn implements syscall.Conn.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return raw{c}, nil }

type raw struct{ conn *Conn }

// Control implements syscall.RawConn.
func (r raw) Control(look func(fd uintptr)) error {
	r.conn.mu.RLock()
	defer r.conn.mu.RUnlock()
	if err := r.conn.isOpen(); err != nil {
		return r.conn.wrap("look", err)
	}
	look(uintptr(r.conn.fd))
	return nil
}

// Read implements syscall.RawConn.
func (r raw) Read(try func(fd uintptr) bool) error {
	_, err := r.conn.doInTurn(&r.conn.reading, asTry(try))
	return r.conn.wrap("read", err)
}

// Write implements syscall.RawConn.
func (r raw) Write(try func(fd uintptr) bool) error {
	_, err := r.conn.doInTurn(&r.conn.writing, asTry(try))
	if err == nil {
		r.conn.afterSend(1)
	}
	return r.conn.wrap("write", err)
}

func asTry(try func(fd uintptr) bool) func(int) (int, error) {
	return func(fd int) (int, error) {
		if try(uintptr(fd)) {
			return 0, nil
		}
		return 0, syscall.EAGAIN
	}
}
