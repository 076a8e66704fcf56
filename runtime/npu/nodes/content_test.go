//go:build cgo && linux

package nodes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/npu"
)

const pageBytes = 2 * 2 * 16 * 128 * 2 // of the layout in nodeText

func keysOf(name string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s@1@0@1%x@bfloat16", name, i)
	}
	return keys
}

// chunkContent returns the bytes of a key's chunk.
func chunkContent(key string, n int) []byte {
	b := make([]byte, n)
	for j := range b {
		b[j] = key[j%len(key)] + byte(j/len(key))
	}
	return b
}

func isContent(b []byte, key string) bool {
	for j := range b {
		if b[j] != key[j%len(key)]+byte(j/len(key)) {
			return false
		}
	}
	return true
}

// An engine computes on an NPU, in a separate context. The engine keeps nothing on the host: bytes that are compared
// are read from the device.
type engine struct {
	ctx    *acl.Context
	device *npu.Device
}

func newEngine(lib *acl.Library, d *npu.Device, id acl.DeviceID) (*engine, error) {
	c, err := lib.NewContext(acl.ContextOptions{Device: id})
	if err != nil {
		return nil, err
	}
	return &engine{c, d}, nil
}

func (e *engine) closeContext() error { return e.ctx.Close() }

// writePage gives a page the bytes that the engine has computed on the device; a page in host memory is copied to from
// the device.
func (e *engine) writePage(page device.Page, b []byte) error {
	at, err := e.device.PageRange(page)
	if err != nil {
		return err
	}
	return e.ctx.Do(func(t *acl.Thread) error {
		host := hostBytes(at)
		if host == nil {
			return t.Upload(at, b)
		}
		computed, err := t.AllocDevice(at.Size, acl.HugeFirst)
		if err != nil {
			return err
		}
		if err = t.Upload(computed.Range(0, at.Size), b); err == nil {
			err = t.Download(host, computed.Range(0, at.Size))
		}
		return errors.Join(err, computed.Close(t))
	})
}

// hostBytes returns the memory of a range, or nil if the range is on a device.
func hostBytes(at acl.Range) []byte {
	b := at.Memory.Bytes()
	if b == nil {
		return nil
	}
	return b[at.Offset : at.Offset+at.Size]
}

func (e *engine) readRange(at acl.Range) ([]byte, error) {
	if host := hostBytes(at); host != nil {
		return slices.Clone(host), nil
	}
	b := make([]byte, at.Size)
	return b, e.ctx.Do(func(t *acl.Thread) error { return t.Download(b, at) })
}

// readPage reads a page of the node.
func (e *engine) readPage(page device.Page) ([]byte, error) {
	at, err := e.device.PageRange(page)
	if err != nil {
		return nil, err
	}
	return e.readRange(at)
}

// overwritePage overwrites a page, as an engine may after the page was returned.
func (e *engine) overwritePage(page device.Page) error {
	b := make([]byte, page.Bytes)
	for i := range b {
		b[i] = 0xee
	}
	return e.writePage(page, b)
}
