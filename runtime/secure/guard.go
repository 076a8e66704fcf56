package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
)

// A Guard authenticates connections. All methods may be called from any goroutine. A nil Guard takes and makes plain
// connections, like a Guard with Mode Off.
type Guard struct {
	config  Config
	current atomic.Pointer[credentials] // nil if the mode is Off
	stats   counters

	limitedLog *loglimit.Log

	mu       sync.Mutex // guards the fields below; held for a moment only
	conns    map[*Conn]struct{}
	names    map[effects.Principal]string // of peers that connected (rememberName)
	onReload func()                       // nil: nobody listens

	reload  chan struct{} // asks the watcher to look at the files now
	stop    context.CancelFunc
	watcher sync.WaitGroup
}

// Stats counts events since the start, except for Open.
type Stats struct {
	Open    int // connections with TLS
	Plain   uint64
	Refused uint64 // handshakes that failed, or whose peer has no role
	// Doubtful counts peers that mode Permissive accepted although Strict would refuse their certificate or their role.
	Doubtful uint64
	// Reloads counts new contents of the files, BadReloads contents that could not be used, and Ended the connections
	// that were closed because their peer's certificate had ended or its role was withdrawn.
	Reloads, BadReloads, Ended uint64
}

type counters struct{ plain, refused, doubtful, reloads, badReloads, ended atomic.Uint64 }

// Open reads the files and returns a Guard that watches them until Close. The error names the key of the
// configuration, the file and the remedy.
func Open(c Config) (*Guard, error) {
	if c.Recheck == 0 {
		c.Recheck = defaultRecheck
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if err := c.checkFiles(); err != nil {
		return nil, err
	}
	g := &Guard{config: c, limitedLog: loglimit.New(c.Log), conns: map[*Conn]struct{}{},
		names: map[effects.Principal]string{}, reload: make(chan struct{}, 1), stop: func() {}}
	if c.Mode == Off {
		return g, nil
	}
	x, err := loadSettled(context.Background(), &c, nil)
	if err != nil {
		return nil, err
	}
	g.current.Store(x)
	var ctx context.Context
	ctx, g.stop = context.WithCancel(context.Background())
	g.watcher.Go(func() { g.watchFiles(ctx) })
	return g, nil
}

// Mode returns the mode; Off for a nil Guard.
func (g *Guard) Mode() Mode {
	if g == nil {
		return Off
	}
	return g.config.Mode
}

// Name returns the identity of this process; empty if the mode is Off.
func (g *Guard) Name() string {
	if x := g.credentials(); x != nil {
		return x.name
	}
	return ""
}

// OnReload makes the guard call f, from its own goroutine, whenever new files have come into force.
func (g *Guard) OnReload(f func()) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onReload = f
}

// StatesTenants reports whether the policy that is in force limits the tenants of identities.
func (g *Guard) StatesTenants() bool {
	x := g.credentials()
	return x != nil && x.policy.statesTenants
}

func (g *Guard) credentials() *credentials {
	if g == nil {
		return nil
	}
	return g.current.Load()
}

// Stats returns the counts.
func (g *Guard) Stats() Stats {
	if g == nil {
		return Stats{}
	}
	g.mu.Lock()
	open := len(g.conns)
	g.mu.Unlock()
	return Stats{Open: open, Plain: g.stats.plain.Load(), Refused: g.stats.refused.Load(), Doubtful: g.stats.doubtful.Load(),
		Reloads:    g.stats.reloads.Load(),
		BadReloads: g.stats.badReloads.Load(), Ended: g.stats.ended.Load()}
}

// Reload looks at the files soon, without waiting for the next regular look.
func (g *Guard) Reload() {
	if g == nil {
		return
	}
	select {
	case g.reload <- struct{}{}:
	default: // A look is due already.
	}
}

// Close stops watching the files. Connections stay open.
func (g *Guard) Close() {
	if g == nil {
		return
	}
	g.stop()
	g.watcher.Wait()
	g.limitedLog.FlushSkipped()
}

// watchFiles reads the files again when their content changes, and closes connections whose peer is no longer
// authorized.
func (g *Guard) watchFiles(ctx context.Context) {
	ticker := time.NewTicker(g.config.Recheck)
	defer ticker.Stop()
	lastError, lastWarning := "", time.Time{}
	for {
		lastWarning = g.warnBeforeEnd(lastWarning)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-g.reload:
		}
		lastError = g.reloadFiles(ctx, lastError)
		g.endConns()
	}
}

// endWarnings is the time between two warnings that our certificate ends soon.
const endWarnings = time.Hour

// warnBeforeEnd warns that our certificate has not been renewed although less than a quarter of its life is left.
// Programs that renew certificates do so earlier. The result is when the last warning was written.
func (g *Guard) warnBeforeEnd(last time.Time) time.Time {
	leaf, now := g.credentials().pair.Leaf, g.config.Now()
	if left := leaf.NotAfter.Sub(now); left >= leaf.NotAfter.Sub(leaf.NotBefore)/4 || now.Sub(last) < endWarnings {
		return last
	}
	g.config.Log.Warn("the certificate of this process ends soon, and peers will refuse it then", "identity", g.Name(),
		"certificate_ends", leaf.NotAfter, "remedy", "renew the file of security.cert; it is read again by itself")
	return now
}

// reloadFiles replaces the credentials if the files have changed. If the files cannot be used, the former credentials
// stay in force, and the error is logged once. The result is the text of the error.
func (g *Guard) reloadFiles(ctx context.Context, lastError string) string {
	former := g.current.Load()
	x, err := loadSettled(ctx, &g.config, former)
	switch {
	case ctx.Err() != nil:
	case err != nil && err.Error() != lastError:
		g.stats.badReloads.Add(1)
		g.config.Log.Error("the files of security cannot be used, and the former ones stay in force", "err", err,
			"former_certificate_ends", former.pair.Leaf.NotAfter)
	case err == nil && x.digest != former.digest:
		g.current.Store(x)
		g.stats.reloads.Add(1)
		g.config.Log.Info("the files of security have changed and are in force", "identity", x.name, "certificate_ends", x.pair.Leaf.NotAfter)
		g.mu.Lock()
		notify := g.onReload
		g.mu.Unlock()
		if notify != nil {
			notify()
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// endConns closes the connections whose peer is no longer authorized or whose certificate has ended.
func (g *Guard) endConns() {
	x, now := g.current.Load(), g.config.Now()
	g.mu.Lock()
	conns := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range conns {
		if err := c.recheck(x, now); err != nil {
			g.limitedLog.Warn("a connection is closed", c.logName(), "peer", c.RemoteAddr(), "reason", err)
			c.endRefused(err)
		}
	}
}

// endRefused closes the connection, or makes its owner end it.
func (c *Conn) endRefused(reason error) {
	c.guard.mu.Lock()
	c.ended = true
	end := c.onRefused
	delete(c.guard.conns, c)
	c.guard.stats.ended.Add(1)
	c.guard.mu.Unlock()
	if end == nil {
		_ = c.Close()
		return
	}
	end(reason)
}

// recheck returns why the peer of an open connection would not be accepted any more. It belongs to the goroutine that
// watches the files.
func (c *Conn) recheck(x *credentials, now time.Time) error {
	switch {
	case c.guard.config.Mode == Permissive: // The peer would be accepted again at once.
		return nil
	case now.After(c.chain[0].NotAfter.Add(ExpiryGrace)):
		return errors.New("the certificate that the peer showed has ended; the peer connects again with its present certificate")
	case x == c.checked:
		return nil
	}
	// The certificate may have ended by less than the grace.
	peer, err := x.verify(c.chain, x509.ExtKeyUsageAny, clampToLife(now, c.chain[0]))
	switch {
	case err != nil:
		return err
	case peer.Roles != c.peer.Roles:
		return errors.New("the policy gives the peer other roles now; the peer connects again with these")
	case !peer.Tenants.Equal(c.peer.Tenants):
		return errors.New("the policy gives the peer other tenants now; the peer connects again with these")
	}
	c.checked = x
	return nil
}

// tlsConfig returns the settings that both ends share.
func (x *credentials) tlsConfig(f Face) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{x.pair}, NextProtos: []string{f.protocol()},
		// Each connection verifies the chain of its peer, so that an ended certificate is not resumed.
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
}

// CompleteClient makes a TLS configuration for a server that is no process of kvferry, such as a Valkey server, use the
// files of the guard for what the configuration lacks: the authorities, and the client certificate. The server must
// show a certificate for the name that is dialled; the policy does not apply.
func (g *Guard) CompleteClient(c *tls.Config) *tls.Config {
	if g.credentials() == nil {
		return c
	}
	c = c.Clone()
	if len(c.Certificates) == 0 {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &g.credentials().pair, nil
		}
	}
	if c.RootCAs == nil {
		// crypto/tls reads RootCAs once, and the files may change. So the verification is done here.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error {
			return g.credentials().verifyServer(s.PeerCertificates, s.ServerName, g.config.Now())
		}
	}
	return c
}
