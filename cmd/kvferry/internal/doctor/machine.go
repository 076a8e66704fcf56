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

// A Machine provides everything that the checks read. Tests supply a Machine with the files of a test case.
type Machine struct {
	Root fs.FS               // the root file system
	Env  func(string) string // the environment

	Memfd      func() error                                              // creates a page pool and removes it
	Clocks     func() (boottime, monotonic time.Duration, err error)     // since boot, with and without suspended time
	Interfaces func() ([]Interface, error)                               // lists the network interfaces
	Listen     func(host string, port uint16) error                      // binds a TCP port for a moment
	Writable   func(dir string) error                                    // fails if files cannot be created in dir
	HostCopy   func(bytes uint64) (bytesPerSecond float64, failed error) // copies in host memory
	NPUs       func(ctx context.Context, libraries Libraries, copyBytes uint64) NPUs
	NIXL       func(ctx context.Context, o libnixl.Options, transports string, bytes uint64) NIXL
}

// An Interface is one network interface with its addresses.
type Interface struct {
	Name      string
	MTU       int
	Up        bool
	Loopback  bool
	Addresses []string // without prefix lengths
}

// LocalMachine returns the machine on which the program runs.
func LocalMachine() Machine {
	return Machine{
		Root: os.DirFS("/"), Env: os.Getenv,
		Memfd: createPool, Clocks: readClocks, Interfaces: listInterfaces, Listen: bindPort,
		Writable: func(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) },
		HostCopy: measureHostCopy, NPUs: inspectNPUs, NIXL: testNIXLWrite,
	}
}

// sink discards completions. The pool that createPool creates has none.
type sink struct{}

func (sink) Post(effects.Event) {}

// createPool creates and closes a pool with the same code as a node, which maps sealed shared memory.
func createPool() error {
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

func listInterfaces() ([]Interface, error) {
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

func bindPort(host string, port uint16) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	return l.Close()
}

// readText returns the content of a file without white space at its ends, or "" if the file cannot be read.
func (m Machine) readText(name string) string {
	b, err := fs.ReadFile(m.Root, strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// exists reports whether the named file or folder exists.
func (m Machine) exists(name string) bool {
	_, err := fs.Stat(m.Root, strings.TrimPrefix(path.Clean(name), "/"))
	return !errors.Is(err, fs.ErrNotExist)
}

// readNumber returns the number that a file contains. It reports false if the file does not contain exactly one number.
func (m Machine) readNumber(name string) (uint64, bool) {
	n, err := strconv.ParseUint(m.readText(name), 10, 64)
	return n, err == nil
}

// readField returns the text after "name:" at the start of a line of a file, as files in /proc are written. It returns
// "" if there is no such line.
func (m Machine) readField(file, name string) string {
	for line := range strings.Lines(m.readText(file)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// readKilobytes returns, in bytes, the value of a field that has the unit kB.
func (m Machine) readKilobytes(file, name string) (uint64, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(m.readField(file, name), " kB"), 10, 54)
	return n << 10, err == nil
}

// globFiles returns the names that match a pattern, in order.
func (m Machine) globFiles(pattern string) []string {
	names, _ := fs.Glob(m.Root, pattern) // Glob fails only for a malformed pattern; the patterns are valid constants.
	return names
}
