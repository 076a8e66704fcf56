//go:build cgo && linux

package nixl

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// Name is the plane's name in handshakes.
const Name = "nixl"

// Config configures the plane. Agents must be set. Zero in another field means its default.
type Config struct {
	// Agents says in which process the agents of libnixl run: nixlproc.Options.Open in one of their own, which needs
	// a pool with a file; nixlproc.InProcess in this one, where peers can then reach all memory and end the process.
	Agents nixlproc.Opener
	// Transports restricts the transports of UCX, in the syntax of UCX_TLS but without a comma: a single name, or ^
	// and a name to exclude. If Transports is empty, UCX chooses. With tcp or ^cma no peer reaches into this process:
	// our own agent stores the bytes that a peer sends, so that a frozen peer on this host delays no revocation.
	Transports string

	// Host is the address at which the channel listens, and which peers are told to dial; 127.0.0.1 if empty. The
	// kernel chooses a port if Port is zero. UCX uses addresses of its own.
	Host string
	Port uint16
	// TrustedNetwork states that all hosts and users that can reach this host may read and write the memory of the
	// agents' process, which is possible over UCX's tcp. If false, Host must be a loopback address, and only peers on
	// this host are reached.
	TrustedNetwork bool

	// TransferTimeout is the time in which at least one batch must end while batches are in flight; default 10 s.
	TransferTimeout time.Duration
	// CancelGrace is the time to wait for a batch of a cancelled transfer before the epoch is given up; default 200
	// ms.
	CancelGrace time.Duration
	// PrepareTimeout is the time in which two agents must connect; default 10 s.
	PrepareTimeout time.Duration
	// RebuildTries is the number of epochs in a row that may fail before a link is lost; default 3.
	RebuildTries int
	// Window is the number of batches of a link that are in flight; default 2. A batch has at most Descriptors
	// descriptors (default 1024), and at most BatchBytes bytes (default 16 MiB) if the batch has several descriptors.
	Window      int
	Descriptors int
	BatchBytes  uint64
	// Links bounds the peers in each direction, each of which has an agent. The default is that of Bounds, but at
	// most 64.
	Links int
}

const (
	maxWindow      = 64
	maxDescriptors = 1 << 16
	defaultLinks   = 64
)

// withDefaults checks the configuration and fills in the defaults.
func (c Config) withDefaults(bounds plane.Bounds) (Config, error) {
	if c.Agents == nil {
		return c, fmt.Errorf("%w: the nixl plane needs Config.Agents", plane.ErrInvalid)
	}
	if envTransports := os.Getenv("UCX_TLS"); c.Transports != "" && envTransports != "" {
		return c, fmt.Errorf("%w: transports of nixl are %q, but UCX_TLS is %q and takes precedence; unset one of the two",
			plane.ErrInvalid, c.Transports, envTransports)
	}
	if strings.ContainsAny(c.Transports, ",= ") {
		return c, fmt.Errorf("%w: transports of nixl are %q; give a single transport, or ^ and a single transport to exclude",
			plane.ErrInvalid, c.Transports)
	}
	for _, f := range []struct {
		name     string
		value    *int
		def, max int
	}{
		{"rebuild tries", &c.RebuildTries, 3, 100},
		{"window", &c.Window, 2, maxWindow},
		{"descriptors", &c.Descriptors, 1024, maxDescriptors},
		{"links", &c.Links, min(defaultLinks, bounds.Links), bounds.Links},
	} {
		*f.value = cmp.Or(*f.value, f.def)
		if *f.value < 1 || *f.value > f.max {
			return c, fmt.Errorf("%w: %s of nixl is %d; give 1 to %d", plane.ErrInvalid, f.name, *f.value, f.max)
		}
	}
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"transfer timeout", &c.TransferTimeout, 10 * time.Second},
		{"cancel grace", &c.CancelGrace, 200 * time.Millisecond},
		{"prepare timeout", &c.PrepareTimeout, 10 * time.Second},
	} {
		*f.value = cmp.Or(*f.value, f.def)
		if *f.value < 0 {
			return c, fmt.Errorf("%w: %s of nixl is %v; give a positive time", plane.ErrInvalid, f.name, *f.value)
		}
	}
	c.BatchBytes = cmp.Or(c.BatchBytes, 16<<20)
	c.Host = cmp.Or(c.Host, "127.0.0.1")
	if err := libnixl.CheckTrusted(c.Host, c.TrustedNetwork); err != nil {
		return c, fmt.Errorf("%w: host of nixl: %w", plane.ErrInvalid, err)
	}
	return c, nil
}

// mayAttach reports whether peers on this host may reach into this process: they may, unless Transports is known to
// prevent that.
func (c *Config) mayAttach() bool { return c.Transports != "tcp" && c.Transports != "^cma" }

// backendParams returns the parameters of libnixl's UCX backend.
func (c *Config) backendParams() map[string]string {
	return libnixl.UCXParams(c.Transports, c.TrustedNetwork)
}

// Open is a plane.Opener.
func (c Config) Open(ctx context.Context, env plane.Env) (plane.Plane, error) {
	p, err := Open(ctx, c, env)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// openListener opens the listener of the channel.
func (c *Config) openListener(ctx context.Context) (net.Listener, string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	if err != nil {
		return nil, "", fmt.Errorf("listen for the nixl plane on %s port %d: %w", c.Host, c.Port, err)
	}
	return listener, framing.AdvertisedAddress(listener), nil
}

// machineRules returns the rules that the machine of each link keeps.
func (c *Config) machineRules(bounds plane.Bounds) communicator.Rules {
	return communicator.Rules{
		Window: c.Window, Tries: c.RebuildTries, Transfers: bounds.Transfers, AnswerTimeout: effects.Duration(bounds.HandshakeTimeout),
		ProgressTimeout: effects.Duration(min(c.TransferTimeout, math.MaxInt64/2)), Grace: effects.Duration(c.CancelGrace),
	}
}
