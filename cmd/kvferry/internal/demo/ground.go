package demo

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/kvferry/kvferry/runtime/control/reserve"
)

// A ground is what processes are given that one demo starts.
type ground struct {
	dir   string // of configurations and logs
	log   io.Writer
	ports []*reserve.Port // kept until the end: a killed process comes back to its own
}

func newGround(log io.Writer) (g ground, err error) {
	if g.dir, err = os.MkdirTemp("", "kvferry-demo-"); err != nil {
		return g, fmt.Errorf("make a folder for configurations: %w", err)
	}
	g.log = &sharedLog{w: log}
	return g, nil
}

// reserve finds n ports, which nothing else gets until the end.
func (g *ground) reserve(n int) (ports []uint16, err error) {
	for range n {
		p, err := reserve.Open(host)
		if err != nil {
			return nil, err
		}
		g.ports = append(g.ports, p)
		ports = append(ports, p.Addr().Port)
	}
	return ports, nil
}

// leaveNothing gives back what the processes were given.
func (g *ground) leaveNothing() {
	for _, p := range g.ports {
		_ = p.Close() // The end of this process would close it as well.
	}
	_ = os.RemoveAll(g.dir)
}

// A sharedLog lets several processes write to one place.
type sharedLog struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *sharedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
