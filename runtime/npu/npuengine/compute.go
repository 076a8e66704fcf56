//go:build cgo && linux

package npuengine

import (
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
)

// A ComputeStream is a stream on which an engine makes content in the background. A ComputeStream belongs to one
// goroutine.
type ComputeStream struct {
	engine *Engine
	stream *acl.Stream
	memory *acl.Memory // for content on its way to the device
	used   uint64
}

// NewComputeStream makes a stream for content of the given number of bytes in total.
func (e *Engine) NewComputeStream(bytes uint64) (*ComputeStream, error) {
	c := &ComputeStream{engine: e}
	err := e.context.Do(func(t *acl.Thread) (err error) {
		if c.memory, err = t.AllocHost(bytes); err != nil {
			return err
		}
		if c.stream, err = t.NewStream(acl.StreamOptions{}); err != nil {
			return errors.Join(err, c.memory.Close(t))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("npuengine: cannot make a compute stream: %w", err)
	}
	return c, nil
}

// StartFill puts the making of pages into the stream: fill stores the content of page i, as many bytes as are valid in
// it. onDone is called when the device has all the content, or has failed, in the order of the calls. onDone must not
// block.
func (c *ComputeStream) StartFill(pages []device.Page, fill func(i int, content []byte), onDone func(error)) error {
	at, err := c.engine.pageRanges(pages)
	if err != nil {
		return err
	}
	return c.engine.context.Do(func(t *acl.Thread) error {
		for i, r := range at {
			if c.used+r.Size > c.memory.Size() {
				return fmt.Errorf("npuengine: the content has %d bytes, but the ComputeStream has %d: make the ComputeStream larger", c.used+r.Size,
					c.memory.Size())
			}
			fill(i, c.memory.Bytes()[c.used:c.used+r.Size])
			if err := c.stream.Copy(t, r, c.memory.Range(c.used, r.Size)); err != nil {
				return err
			}
			c.used += r.Size
		}
		return c.stream.Notify(t, onDone)
	})
}

// Close frees the stream and its memory. All work must have ended.
func (c *ComputeStream) Close() error {
	return c.engine.context.Do(func(t *acl.Thread) error { return errors.Join(c.stream.Close(t), c.memory.Close(t)) })
}
