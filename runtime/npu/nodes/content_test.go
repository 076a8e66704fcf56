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

// content returns the bytes of a key's chunk.
func content(key string, n int) []byte {
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

func (e *engine) close() error { return e.ctx.Close() }

// upload gives a page the bytes that the engine has computed on the device; a page in host memory is copied to from the
// device.
func (e *engine) upload(page device.Page, b []byte) error {
	at, err := e.device.Range(page)
	if err != nil {
		return err
	}
	return e.ctx.Do(func(t *acl.Thread) error {
		host := onHost(at)
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

// onHost returns the memory of a range, or nil if the range is on a device.
func onHost(at acl.Range) []byte {
	b := at.Memory.Bytes()
	if b == nil {
		return nil
	}
	return b[at.Offset : at.Offset+at.Size]
}

func (e *engine) download(at acl.Range) ([]byte, error) {
	if host := onHost(at); host != nil {
		return slices.Clone(host), nil
	}
	b := make([]byte, at.Size)
	return b, e.ctx.Do(func(t *acl.Thread) error { return t.Download(b, at) })
}

// look reads a page of the node.
func (e *engine) look(page device.Page) ([]byte, error) {
	at, err := e.device.Range(page)
	if err != nil {
		return nil, err
	}
	return e.download(at)
}

// spoil overwrites a page, as an engine may after the page was returned.
func (e *engine) spoil(page device.Page) error {
	b := make([]byte, page.Bytes)
	for i := range b {
		b[i] = 0xee
	}
	return e.upload(page, b)
}
