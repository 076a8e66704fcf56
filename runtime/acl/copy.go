//go:build cgo && linux

package acl

// #include "calls.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// A Copy is a piece of work: from Src to Dst, which have the same size.
type Copy struct{ Dst, Src Range }

// checkedDirection checks both ends and returns the direction. Copies within the host are not supported by devices.
func (c Copy) checkedDirection(t *Thread) (C.int, error) {
	if err := c.Dst.checkAccess(t, "destination"); err != nil {
		return 0, err
	}
	if err := c.Src.checkAccess(t, "source"); err != nil {
		return 0, err
	}
	if c.Dst.Size != c.Src.Size {
		return 0, fmt.Errorf("%w: the destination is %d bytes and the source is %d", ErrRange, c.Dst.Size, c.Src.Size)
	}
	switch from, to := c.Src.Memory.place, c.Dst.Memory.place; {
	case from == OnHost && to == OnDevice:
		return C.ACL_HOST_TO_DEVICE, nil
	case from == OnDevice && to == OnHost:
		return C.ACL_DEVICE_TO_HOST, nil
	case from == OnDevice && to == OnDevice:
		return C.ACL_DEVICE_TO_DEVICE, nil
	}
	return 0, fmt.Errorf("%w: a copy from host to host: copy with the processor", ErrInvalid)
}

// Copy puts a single copy into the stream. Both ranges stay in use until a later completion has arrived, also after an
// error of the library.
func (s *Stream) Copy(t *Thread, dst, src Range) error {
	if err := s.CheckUsable(t); err != nil {
		return err
	}
	c := Copy{Dst: dst, Src: src}
	kind, err := c.checkedDirection(t)
	if err != nil {
		return err
	}
	return s.queueCopy(t, c, kind)
}

func (s *Stream) queueCopy(t *Thread, c Copy, kind C.int) error {
	if c.Src.Size == 0 {
		return nil
	}
	code := C.call_copy_async(t.call, c.Dst.startAddress(), c.Src.startAddress(), C.size_t(c.Src.Size), kind, s.handle)
	if code != 0 {
		return t.callError(code, "aclrtMemcpyAsync", "dst=%#x src=%#x count=%d kind=%d stream=%#x", c.Dst.startAddress(), c.Src.startAddress(),
			c.Src.Size, kind, s.handle)
	}
	return nil
}

// Fill puts into the stream a fill of dst with a byte value.
func (s *Stream) Fill(t *Thread, dst Range, value byte) error {
	if err := s.CheckUsable(t); err != nil {
		return err
	}
	if err := dst.checkAccess(t, "destination"); err != nil || dst.Size == 0 {
		return err
	}
	code := C.call_set_async(t.call, dst.startAddress(), C.int32_t(value), C.size_t(dst.Size), s.handle)
	if code != 0 {
		return t.callError(code, "aclrtMemsetAsync", "address=%#x value=%d count=%d stream=%#x", dst.startAddress(), value, dst.Size,
			s.handle)
	}
	return nil
}

// Upload copies ordinary memory to the device and returns when the copy is complete. The call blocks the context's
// thread and is meant for small amounts.
func (t *Thread) Upload(dst Range, src []byte) error {
	if err := t.checkHostCopy(dst, src); err != nil || len(src) == 0 {
		return err
	}
	code := C.call_upload(t.call, dst.startAddress(), unsafe.Pointer(&src[0]), C.size_t(len(src)))
	return t.callError(code, "aclrtMemcpy", "dst=%#x count=%d kind=host to device", dst.startAddress(), len(src))
}

// Download copies from the device to ordinary memory and returns when the copy is complete. The call blocks the
// context's thread and is meant for small amounts.
func (t *Thread) Download(dst []byte, src Range) error {
	if err := t.checkHostCopy(src, dst); err != nil || len(dst) == 0 {
		return err
	}
	code := C.call_download(t.call, unsafe.Pointer(&dst[0]), src.startAddress(), C.size_t(len(dst)))
	return t.callError(code, "aclrtMemcpy", "src=%#x count=%d kind=device to host", src.startAddress(), len(dst))
}

func (t *Thread) checkHostCopy(device Range, host []byte) error {
	if err := device.checkAccess(t, "device's side of the copy"); err != nil {
		return err
	}
	if device.Memory.place != OnDevice {
		return fmt.Errorf("%w: the device's side of the copy is %v memory", ErrInvalid, device.Memory.place)
	}
	if device.Size != uint64(len(host)) {
		return fmt.Errorf("%w: the device's side of the copy has %d bytes and the host's side has %d", ErrRange, device.Size, len(host))
	}
	return nil
}
