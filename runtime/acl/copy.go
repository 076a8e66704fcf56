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

// kind checks both ends and returns the direction. Copies within the host are not supported by devices.
func (c Copy) kind(t *Thread) (C.int, error) {
	if err := c.Dst.check(t, "destination"); err != nil {
		return 0, err
	}
	if err := c.Src.check(t, "source"); err != nil {
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
	return 0, fmt.Errorf("%w: a copy from host to host: the processor does that", ErrInvalid)
}

// Copy puts a single copy into the stream. Both ranges stay in use until a later completion has arrived, also after an
// error of the library.
func (s *Stream) Copy(t *Thread, dst, src Range) error {
	if err := s.Usable(t); err != nil {
		return err
	}
	c := Copy{Dst: dst, Src: src}
	kind, err := c.kind(t)
	if err != nil {
		return err
	}
	return s.copy(t, c, kind)
}

func (s *Stream) copy(t *Thread, c Copy, kind C.int) error {
	if c.Src.Size == 0 {
		return nil
	}
	code := C.call_copy_async(t.call, c.Dst.start(), c.Src.start(), C.size_t(c.Src.Size), kind, s.handle)
	if code != 0 {
		return t.answer(code, "aclrtMemcpyAsync", "dst=%#x src=%#x count=%d kind=%d stream=%#x", c.Dst.start(), c.Src.start(),
			c.Src.Size, kind, s.handle)
	}
	return nil
}

// Fill puts into the stream a fill of dst with a byte value.
func (s *Stream) Fill(t *Thread, dst Range, with byte) error {
	if err := s.Usable(t); err != nil {
		return err
	}
	if err := dst.check(t, "destination"); err != nil || dst.Size == 0 {
		return err
	}
	code := C.call_set_async(t.call, dst.start(), C.int32_t(with), C.size_t(dst.Size), s.handle)
	if code != 0 {
		return t.answer(code, "aclrtMemsetAsync", "address=%#x value=%d count=%d stream=%#x", dst.start(), with, dst.Size,
			s.handle)
	}
	return nil
}

// Upload copies ordinary memory to the device and returns when the copy is complete. The call blocks the context's
// thread and is meant for small amounts.
func (t *Thread) Upload(dst Range, src []byte) error {
	if err := t.transfer(dst, src); err != nil || len(src) == 0 {
		return err
	}
	code := C.call_upload(t.call, dst.start(), unsafe.Pointer(&src[0]), C.size_t(len(src)))
	return t.answer(code, "aclrtMemcpy", "dst=%#x count=%d kind=host to device", dst.start(), len(src))
}

// Download copies from the device to ordinary memory and returns when the copy is complete. The call blocks the
// context's thread and is meant for small amounts.
func (t *Thread) Download(dst []byte, src Range) error {
	if err := t.transfer(src, dst); err != nil || len(dst) == 0 {
		return err
	}
	code := C.call_download(t.call, unsafe.Pointer(&dst[0]), src.start(), C.size_t(len(dst)))
	return t.answer(code, "aclrtMemcpy", "src=%#x count=%d kind=device to host", src.start(), len(dst))
}

func (t *Thread) transfer(device Range, host []byte) error {
	if err := device.check(t, "device's end"); err != nil {
		return err
	}
	if device.Memory.place != OnDevice {
		return fmt.Errorf("%w: the device's end is %v memory", ErrInvalid, device.Memory.place)
	}
	if device.Size != uint64(len(host)) {
		return fmt.Errorf("%w: the device's end is %d bytes and the host's is %d", ErrRange, device.Size, len(host))
	}
	return nil
}
