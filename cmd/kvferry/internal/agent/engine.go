package agent

import (
	"context"

	"github.com/kvferry/kvferry/runtime"
)

// An Engine gives the agent access to the pages of the node's pool as an engine would have it, in host or in device
// memory. An Engine is safe for concurrent use.
type Engine interface {
	// FillPage calls fill to write the first n bytes of page i, in place or in a buffer that is then copied to the
	// page.
	FillPage(p *runtime.Pages, i, n int, fill func([]byte)) error
	// ReadPage calls look with the valid bytes of page i: the page's own memory, or a copy of it.
	ReadPage(p *runtime.Pages, i int, look func([]byte)) error
	// SetDestination sets f's destination so that the fetch delivers each chunk to look, with the index of the chunk's
	// key, from the memory with which the engine would compute.
	SetDestination(f *runtime.Fetch, look func(key int, chunk []byte))
}

// InProcess is the Engine of a pool in this process's memory. It reads and writes the pages in place.
type InProcess struct{}

// FillPage implements Engine.
func (InProcess) FillPage(p *runtime.Pages, i, n int, fill func([]byte)) error {
	b, err := p.Bytes(i)
	if err == nil {
		fill(b[:min(n, len(b))])
	}
	return err
}

// ReadPage implements Engine.
func (InProcess) ReadPage(p *runtime.Pages, i int, look func([]byte)) error {
	b, err := p.Bytes(i)
	if err == nil {
		look(b)
	}
	return err
}

// SetDestination implements Engine.
func (InProcess) SetDestination(f *runtime.Fetch, look func(int, []byte)) {
	f.Scatter = func(_ context.Context, first int, chunks [][]byte) error {
		for i, b := range chunks {
			look(first+i, b)
		}
		return nil
	}
}
