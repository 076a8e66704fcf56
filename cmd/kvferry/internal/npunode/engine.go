//go:build cgo && linux

package npunode

import (
	"context"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/npu"
)

// An engine computes on the NPU, in a context of its own beside the node's, as a real one does in the same process. What it
// looks at was read from the device for that; nothing is kept on the host.
type engine struct {
	device *npu.Device
	ctx    *acl.Context
}

func newEngine(lib *acl.Library, device *npu.Device) (*engine, error) {
	ctx, err := lib.NewContext(acl.ContextOptions{Device: device.Context().Device()})
	if err != nil {
		return nil, err
	}
	return &engine{device, ctx}, nil
}

func (e *engine) close() error { return e.ctx.Close() }

// Fill implements agent.Engine: the bytes are made on the host and uploaded.
func (e *engine) Fill(p *runtime.Pages, i, n int, fill func([]byte)) error {
	page, err := p.Device(i)
	if err != nil {
		return err
	}
	at, err := e.device.Range(page)
	if err != nil {
		return err
	}
	if b := at.Memory.Bytes(); b != nil {
		fill(b[at.Offset:][:min(uint64(n), at.Size)]) // Pinned memory of the host.
		return nil
	}
	b := make([]byte, min(uint64(n), at.Size))
	fill(b)
	return e.ctx.Do(func(t *acl.Thread) error { return t.Upload(at.Memory.Range(at.Offset, uint64(len(b))), b) })
}

// Look implements agent.Engine.
func (e *engine) Look(p *runtime.Pages, i int, look func([]byte)) error {
	page, err := p.Device(i)
	if err != nil {
		return err
	}
	at, err := e.device.Range(page)
	if err != nil {
		return err
	}
	if b := at.Memory.Bytes(); b != nil {
		look(b[at.Offset:][:at.Size])
		return nil
	}
	return e.download(at, look)
}

func (e *engine) download(at acl.Range, look func([]byte)) error {
	b := make([]byte, at.Size)
	if err := e.ctx.Do(func(t *acl.Thread) error { return t.Download(b, at) }); err != nil {
		return err
	}
	look(b)
	return nil
}

// Take implements agent.Engine: the chunks of a batch are copied on a stream to memory of the engine's own, and looked at there.
func (e *engine) Take(f *runtime.Fetch, look func(key int, chunk []byte)) {
	f.Device = func(ctx context.Context, first int, chunks []runtime.DevicePage) error {
		total := uint64(0)
		for _, c := range chunks {
			total += uint64(c.Bytes)
		}
		own, err := e.allocate(total)
		if err != nil {
			return err
		}
		err = e.scatter(ctx, first, chunks, own, look)
		return e.free(own, err)
	}
}

func (e *engine) allocate(bytes uint64) (own *acl.Memory, err error) {
	err = e.ctx.Do(func(t *acl.Thread) error {
		own, err = t.AllocDevice(bytes, acl.HugeFirst)
		return err
	})
	return own, err
}

// free gives memory back that nothing uses, and returns the error of what was done with it, or its own.
func (e *engine) free(own *acl.Memory, done error) error {
	err := e.ctx.Do(own.Close)
	if done != nil {
		return done
	}
	return err
}

// scatter returns when nothing uses own any more.
func (e *engine) scatter(ctx context.Context, first int, chunks []runtime.DevicePage, own *acl.Memory, look func(int, []byte)) error {
	to := make([]acl.Range, len(chunks))
	offset := uint64(0)
	for i, c := range chunks {
		to[i] = own.Range(offset, uint64(c.Bytes))
		offset += uint64(c.Bytes)
	}
	copyAll := e.device.Scatter(func(t *acl.Thread, s *acl.Stream, _ int, from []acl.Range) error {
		for i := range from {
			if err := s.Copy(t, to[i], from[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err := copyAll(ctx, first, chunks); err != nil {
		return err
	}
	for i, at := range to {
		if err := e.download(at, func(b []byte) { look(first+i, b) }); err != nil {
			return err
		}
	}
	return nil
}
