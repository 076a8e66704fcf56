package agent

import (
	"context"

	"github.com/kvferry/kvferry/runtime"
)

// An Engine is where the node's engine would compute: it reaches the pages of the node's pool, in whatever memory they
// are.
// It is safe for concurrent use.
type Engine interface {
	// Fill has fill make the first n bytes of page i: in place, or on their way there.
	Fill(p *runtime.Pages, i, n int, fill func([]byte)) error
	// Look shows look the valid bytes of page i: the page's own, or what was read of it for this.
	Look(p *runtime.Pages, i int, look func([]byte)) error
	// Take has f hand its chunks to look, each with the index of its key, from where the engine would compute with them.
	Take(f *runtime.Fetch, look func(key int, chunk []byte))
}

// InProcess is the engine of a pool in memory of this process: bytes are where they are looked for.
type InProcess struct{}

// Fill implements Engine.
func (InProcess) Fill(p *runtime.Pages, i, n int, fill func([]byte)) error {
	b, err := p.Host(i)
	if err == nil {
		fill(b[:min(n, len(b))])
	}
	return err
}

// Look implements Engine.
func (InProcess) Look(p *runtime.Pages, i int, look func([]byte)) error {
	b, err := p.Host(i)
	if err == nil {
		look(b)
	}
	return err
}

// Take implements Engine.
func (InProcess) Take(f *runtime.Fetch, look func(int, []byte)) {
	f.Scatter = func(_ context.Context, first int, chunks [][]byte) error {
		for i, b := range chunks {
			look(first+i, b)
		}
		return nil
	}
}
