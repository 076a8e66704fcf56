// Package shm is the fenced data plane between processes on one host.
//
// Each end passes its pool to the peer once, as sealed memfds over a unix socket, and the peer maps the pool
// read-only. A push is a request: copy threads of the target copy page by page out of the initiator's pool into the
// target's pool. A read needs no request: copy threads of the reader copy out of the owner's pool, even while the
// owner's process is frozen. Either way the bytes of a transfer are copied once.
//
// Before and after the copy of each page, the copying process compares the page's generation and a permit: the permit
// of the transfer for a push, the permit of the read lease for a read. So the copy of a page that its owner has taken
// back, even if only from this transfer or this lease, never passes for the page that was requested (M3). Therefore a
// push is settled as soon as the push has ended, and a read lease is Revoked at once, whatever the peer does.
//
// Both ends must run as the same user, or either end as root. All other peers use another plane.
//
// A mapping does not show that the owner has died: copies simply go on. Therefore transfers are completed by messages,
// and the end of the socket ends all transfers of both sides.
//
// To use the plane, pass [Open] or Config.Open to runtime.WithPlane:
//
//	runtime.WithPlane(shm.Config{Copiers: 1}.Open)
package shm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/plane/internal/nontemporal"
)

// Name is the plane's name in handshakes.
const Name = "shm"

const (
	// defaultCopiers threads gave 1.2 to 1.8 times the throughput of a single thread; docs/benchmarks.md has the
	// measurement.
	defaultCopiers = 2
	// defaultNonTemporal is near the size in bytes at which copying around the caches becomes faster for bytes that
	// the caches hold (BenchmarkHot of package nontemporal: between 4 and 16 MiB). After a smaller copy the next
	// reader of the pages may still find them in a cache.
	defaultNonTemporal = 4 << 20
)

// Config configures the plane. The zero value is usable.
type Config struct {
	// Dir is the folder in which a private folder for the socket is made, the same at both ends. If Dir is empty, the
	// socket has an abstract name, which all processes of a network namespace can reach. Containers with separate
	// network namespaces need a shared folder. The path of a unix socket has at most 107 bytes in all.
	Dir string
	// Copiers is the number of copy threads. Zero means two, or 1 on a host with a single core. A single thread does
	// not use the whole memory bandwidth that is available, and more than two would take cores from the engine.
	Copiers int
	// NonTemporalBytes is the size of the smallest batch that may be copied around the caches. Larger batches are
	// copied in this way if that has proved to be faster. Zero means 4 MiB.
	NonTemporalBytes uint64
}

// Open is a plane.Opener with the default configuration.
func Open(ctx context.Context, env plane.Env) (plane.Plane, error) { return Config{}.Open(ctx, env) }

// Open is a plane.Opener.
func (c Config) Open(ctx context.Context, env plane.Env) (plane.Plane, error) {
	return c.openWith(ctx, env, plane.Move, nontemporal.Copy)
}

func (c Config) openWith(ctx context.Context, env plane.Env, small, large plane.Mover) (plane.Plane, error) {
	if err := checkProcessor(processor); err != nil {
		return nil, err
	}
	env, err := env.CompleteFenced()
	if err != nil {
		return nil, err
	}
	if c.Copiers == 0 {
		c.Copiers = min(defaultCopiers, runtime.NumCPU())
	}
	if c.NonTemporalBytes == 0 {
		c.NonTemporalBytes = defaultNonTemporal
	}
	if maxCopiers := 4 * runtime.NumCPU(); c.Copiers < 0 || c.Copiers > maxCopiers {
		return nil, fmt.Errorf("%w: shm has %d copiers; give 1 to %d", plane.ErrInvalid, c.Copiers, maxCopiers)
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	permits, err := plane.NewPermits(env.Bounds.Transfers)
	if err != nil {
		return nil, err
	}
	listener, folder, err := listenForPeers(ctx, c.Dir)
	if err != nil {
		_ = permits.Close()
		return nil, err
	}
	m := &medium{boot: boot, dir: c.Dir, folder: folder, permits: permits, copiers: startCopiers(c.Copiers),
		chooser: &moverChooser{movers: [wayCount]plane.Mover{small, large}, largeBytes: c.NonTemporalBytes}}
	p, err := link.Open(link.Config{Name: Name, Env: env, Medium: m, Listener: listener,
		Address: boot + " " + listener.Addr().String()})
	if err != nil {
		_ = listener.Close()
		m.Close()
		return nil, err
	}
	return p, nil
}

// processor is the architecture that this process runs on. Tests replace it.
var processor = runtime.GOARCH

// checkProcessor refuses processors for which nobody has shown that a torn or late copy never passes.
// plane.Mapping.CopyPage compares words around plain loads, and the order of these loads depends on the processor (see
// runtime/plane/generation.go).
func checkProcessor(arch string) error {
	switch arch {
	case "amd64", "arm64":
		return nil
	}
	return fmt.Errorf("%w: the shm plane relies on the memory order of the processor; the argument was made for amd64 and "+
		"arm64, not for %s; set transfer_channel: tcp", plane.ErrInvalid, arch)
}

// bootID identifies this boot of this host. All processes of the host have the same id.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id of this host: %w; the shm plane needs /proc", err)
	}
	return string(bytes.TrimSpace(b)), nil
}
