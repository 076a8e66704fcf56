package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Machine is what the checks look at.
type Machine struct {
	Root fs.FS               // the root file system
	Env  func(string) string // the environment

	Memfd      func() error                                              // makes a page pool and drops it
	Clocks     func() (boottime, monotonic time.Duration, err error)     // since boot, with and without suspend
	Interfaces func() ([]Interface, error)                               // of the network
	Listen     func(host string, port uint16) error                      // binds a TCP port for a moment
	Writable   func(dir string) error                                    // asks whether files can be made there
	HostCopy   func(bytes uint64) (bytesPerSecond float64, failed error) // copies in host memory
	NPUs       func(ctx context.Context, libraries Libraries, copyBytes uint64) NPUs
	NIXL       func(ctx context.Context, o libnixl.Options, transports string, bytes uint64) NIXL
}

// An Interface is one of the network's, with its addresses.
type Interface struct {
	Name      string
	MTU       int
	Up        bool
	Loopback  bool
	Addresses []string // without lengths of networks
}

// This is the machine we run on.
func This() Machine {
	return Machine{
		Root: os.DirFS("/"), Env: os.Getenv,
		Memfd: makePool, Clocks: readClocks, Interfaces: interfaces, Listen: listen,
		Writable: func(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) },
		HostCopy: hostCopy, NPUs: lookAtNPUs, NIXL: lookAtNIXL,
	}
}

// sink takes completions of a pool that has none.
type sink struct{}

func (sink) Post(effects.Event) {}

// makePool does what a node does first, with its own code: sealed shared memory, mapped.
func makePool() error {
	p, err := plane.NewPool(plane.PoolConfig{Pages: 1, PageBytes: uint64(os.Getpagesize()), Sink: sink{}})
	if err != nil {
		return err
	}
	return p.Close()
}

func readClocks() (boottime, monotonic time.Duration, err error) {
	var b, m unix.Timespec
	// The boot clock first: suspended time must not come out negative.
	err = cmp.Or(unix.ClockGettime(unix.CLOCK_BOOTTIME, &b), unix.ClockGettime(unix.CLOCK_MONOTONIC, &m))
	return time.Duration(b.Nano()), time.Duration(m.Nano()), err
}

func interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []Interface
	for _, i := range all {
		one := Interface{Name: i.Name, MTU: i.MTU, Up: i.Flags&net.FlagUp != 0, Loopback: i.Flags&net.FlagLoopback != 0}
		addresses, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			if network, ok := a.(*net.IPNet); ok {
				one.Addresses = append(one.Addresses, network.IP.String())
			}
		}
		list = append(list, one)
	}
	return list, nil
}

func listen(host string, port uint16) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	return l.Close()
}

// text is a file's content without white space at its ends; "" where it cannot be read.
func (m Machine) text(name string) string {
	b, err := fs.ReadFile(m.Root, strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// has reports whether there is such a file or folder.
func (m Machine) has(name string) bool {
	_, err := fs.Stat(m.Root, strings.TrimPrefix(path.Clean(name), "/"))
	return !errors.Is(err, fs.ErrNotExist)
}

// number is a file that holds one number.
func (m Machine) number(name string) (uint64, bool) {
	n, err := strconv.ParseUint(m.text(name), 10, 64)
	return n, err == nil
}

// field is what follows "name:" at the start of a line, as files of /proc have it.
func (m Machine) field(file, name string) string {
	for line := range strings.Lines(m.text(file)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kilobytes is such a field with the unit kB, in bytes.
func (m Machine) kilobytes(file, name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(m.field(file, name), " kB"), 10, 54)
	return n << 10, err == nil
}

// matches are the names that fit a pattern, in order.
func (m Machine) matches(pattern string) []string {
	names, _ := fs.Glob(m.Root, pattern) // Patterns are constants, and well formed.
	return names
}
