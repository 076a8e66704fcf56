package demo

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/kvferry/kvferry/runtime/control/reserve"
)

// A workspace holds the folder, the log and the ports that the processes of a demo use.
type workspace struct {
	dir     string // the folder of configurations and logs
	log     io.Writer
	ports   []*reserve.Port // reserved until the end, because a restarted process uses the same ports
	certs   *certificates   // nil: connections are plain
	release *releaseChoice
}

func newWorkspace(o *Options) (g workspace, err error) {
	if g.dir, err = os.MkdirTemp("", "kvferry-demo-"); err != nil {
		return g, fmt.Errorf("make a folder for configurations: %w", err)
	}
	g.log, g.release = &syncWriter{w: o.Log}, newReleaseChoice(o.Other)
	if o.Secure {
		g.certs, err = newCertificates(g.dir)
	}
	return g, err
}

// reservePorts reserves n free ports until cleanUp.
func (g *workspace) reservePorts(n int) (ports []uint16, err error) {
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

// report adds to an outcome what certificates and releases have to say.
func (g *workspace) report(o *Outcome) {
	g.certs.report(o)
	g.release.report(o)
}

// cleanUp releases the ports and removes the folder.
func (g *workspace) cleanUp() {
	g.certs.close()
	for _, p := range g.ports {
		_ = p.Close() // The end of this process closes the port as well.
	}
	_ = os.RemoveAll(g.dir)
}

// A syncWriter serializes the log output of several processes.
type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *syncWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
