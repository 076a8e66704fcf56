package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// certificates are the files by which the processes of a demo prove their identities. They are renewed again and again
// while the demo plays, and each process is told by SIGHUP.
type certificates struct {
	authority *authority.Authority
	dir       string
	stop      context.CancelFunc
	renewer   sync.WaitGroup

	mu         sync.Mutex
	identities map[string]string // by folder
	processes  []*process        // that take SIGHUP
	renewals   int               // of all certificates
	err        error             // the first error of a renewal
}

const (
	trustDomain = "demo.kvferry"
	// renewPause is the time between two renewals of all certificates.
	renewPause = time.Second
	// certificateLife is how long each certificate is valid.
	certificateLife = time.Hour
)

func newCertificates(dir string) (*certificates, error) {
	a, err := authority.New(certificateLife, time.Now)
	if err != nil {
		return nil, err
	}
	c := &certificates{authority: a, dir: dir, identities: map[string]string{}}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	c.renewer.Go(func() {
		for sleepContext(ctx, renewPause) {
			c.renewAll()
		}
	})
	return c, nil
}

// issue writes the first certificate of a process, and returns the folder. Role is a role of the policy, or both.
func (c *certificates) issue(role, name string) (folder string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	folder = filepath.Join(c.dir, "certs", name)
	c.identities[folder] = fmt.Sprintf("spiffe://%s/%s/%s", trustDomain, role, name)
	return folder, c.write(folder)
}

// write writes a new certificate into a folder. The caller holds mu.
func (c *certificates) write(folder string) error {
	return c.authority.WriteFolder(folder, c.identities[folder], authority.FleetPolicy(trustDomain))
}

// renewAll writes new certificates for all processes, and tells the processes that run.
func (c *certificates) renewAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for folder := range c.identities {
		if err := c.write(folder); err != nil && c.err == nil {
			c.err = fmt.Errorf("renew a certificate: %w", err)
		}
	}
	c.renewals++
	for _, p := range c.processes {
		select {
		case <-p.ready: // Before that, SIGHUP would end the process.
			_ = p.cmd.Process.Signal(syscall.SIGHUP) // It fails if the process has ended.
		default:
		}
	}
	c.processes = slices.DeleteFunc(c.processes, func(p *process) bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
}

// prepare makes a program use the certificates of a new identity. The variable is the environment variable that
// overrides extra_config in the program's configuration.
func (c *certificates) prepare(p *program, role, variable string) error {
	if c == nil {
		return nil
	}
	folder, err := c.issue(role, p.name)
	if err != nil {
		return err
	}
	override, err := json.Marshal(map[string]any{"kvferry": map[string]any{"security": map[string]string{"mode": "strict",
		"dir": folder}}})
	if err != nil {
		return err
	}
	p.env = append(p.env, variable+"="+string(override))
	onStart := p.onStart
	p.onStart = func(started *process) {
		c.mu.Lock()
		c.processes = append(c.processes, started)
		c.mu.Unlock()
		if onStart != nil {
			onStart(started)
		}
	}
	return nil
}

// The variables that override extra_config in the configuration of a node and of a directory.
const (
	nodeVariable      = "LMCACHE_EXTRA_CONFIG"
	directoryVariable = "LMCACHE_CONTROLLER_EXTRA_CONFIG"
)

// close ends the renewals.
func (c *certificates) close() {
	if c != nil {
		c.stop()
		c.renewer.Wait()
	}
}

// report adds to an outcome how many times all certificates were renewed, and the first error of a renewal.
func (c *certificates) report(o *Outcome) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Renewals = c.renewals; c.err != nil {
		o.Unclean, o.OK = append(o.Unclean, c.err.Error()), false
	}
}

// roleOf returns the role in the policy for a node with this pd_role.
func roleOf(pdRole string) string {
	switch pdRole {
	case "sender":
		return "prefill"
	case "receiver":
		return "decode"
	}
	return "both"
}
