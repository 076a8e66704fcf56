//go:build cgo && linux

package doctor

import (
	"context"
	"errors"
	"time"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
)

// An npuInspector inspects all NPUs of the machine.
type npuInspector struct {
	copyBytes uint64
	timeout   time.Duration // limit for one copy, after which the copy is taken to be stuck
}

// inspectNPUs loads AscendCL, uses each device in turn, in a new device context, and measures copies. If ctx is
// cancelled, the inspection ends before the next copy.
func inspectNPUs(ctx context.Context, libraries Libraries, copyBytes uint64) NPUs {
	return npuInspector{copyBytes: copyBytes, timeout: 30 * time.Second}.inspectAll(ctx, libraries)
}

func (l npuInspector) inspectAll(ctx context.Context, libraries Libraries) NPUs {
	hccl := inspectHCCL(libraries.HCCL) // first, because AscendCL may load HCCL too, and HCCL reads its timeouts only once
	lib, err := acl.Open(acl.Options{Library: libraries.ACL})
	if err != nil {
		return NPUs{Err: err, HCCL: hccl}
	}
	n := NPUs{Info: lib.Info(), HCCL: hccl}
	count, err := lib.DeviceCount()
	if err != nil {
		return NPUs{Err: errors.Join(err, lib.Close()), HCCL: hccl}
	}
	for id := range count {
		n.Devices = append(n.Devices, l.inspectDevice(ctx, lib, id, count))
	}
	n.CloseErr = lib.Close()
	return n
}

func inspectHCCL(o comm.Options) HCCL {
	lib, err := comm.Open(o)
	if err != nil {
		return HCCL{Err: err}
	}
	return HCCL{Info: lib.Info(), Err: lib.Close()}
}

func (l npuInspector) inspectDevice(ctx context.Context, lib *acl.Library, id, count int) Device {
	d := Device{ID: id, Physical: -1, Reaches: map[int]bool{}}
	if physical, err := lib.PhysicalID(acl.DeviceID(id)); err == nil {
		d.Physical = physical
	}
	if pod, err := lib.SuperPod(acl.DeviceID(id)); err == nil {
		d.SuperPod = &SuperPod{pod.ID, pod.Server, pod.Device}
	}
	for peer := range count {
		if can, err := lib.CanAccessPeer(acl.DeviceID(id), acl.DeviceID(peer)); err == nil && peer != id {
			d.Reaches[peer] = can
		}
	}
	if d.Err = ctx.Err(); d.Err != nil {
		return d
	}
	c, err := lib.NewContext(acl.ContextOptions{Device: acl.DeviceID(id)})
	if err != nil {
		d.Err = err
		return d
	}
	settled := true
	d.Err = c.Do(func(t *acl.Thread) error {
		info, err := t.MemInfo()
		if err != nil {
			return err
		}
		d.Free, d.Total = info.Free, info.Total
		d.Copies, settled = l.measureCopies(ctx, t)
		return nil
	})
	if settled {
		d.Err = errors.Join(d.Err, c.Close())
	} else {
		// Copies may be in progress, and their memory must not be freed.
		d.Err = errors.Join(d.Err, c.Abandon())
	}
	return d
}

// measureCopies measures copies between pinned host memory and the device, and within the device. If settled is false,
// a copy may still be in progress and the memory was left allocated.
func (l npuInspector) measureCopies(ctx context.Context, t *acl.Thread) (speeds []Speed, settled bool) {
	host, far, near, s, err := allocateBuffers(t, l.copyBytes)
	defer func() {
		if settled {
			err = errors.Join(err, releaseBuffers(t, s, host, far, near))
		}
		if err != nil {
			speeds = append(speeds, Speed{Name: "copies", Err: err})
		}
	}()
	if err != nil {
		return nil, true
	}
	clear(host.Bytes())
	for _, c := range []struct {
		name     string
		dst, src *acl.Memory
	}{{"host to device", far, host}, {"device to host", host, far}, {"device to device", near, far}} {
		speed := Speed{Name: c.name}
		speed.PerSecond, speed.Err = measureBest(l.copyBytes, func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.Copy(t, c.dst.FullRange(), c.src.FullRange()); err != nil {
				return err
			}
			return s.Synchronize(t, l.timeout)
		})
		speeds = append(speeds, speed)
		if speed.Err != nil {
			return speeds, speed.Err == ctx.Err()
		}
	}
	return speeds, true
}

func allocateBuffers(t *acl.Thread, bytes uint64) (host, far, near *acl.Memory, s *acl.Stream, err error) {
	if host, err = t.AllocHost(bytes); err != nil {
		return
	}
	if far, err = t.AllocDevice(bytes, acl.HugeFirst); err != nil {
		return
	}
	if near, err = t.AllocDevice(bytes, acl.HugeFirst); err != nil {
		return
	}
	s, err = t.NewStream(acl.StreamOptions{})
	return
}

func releaseBuffers(t *acl.Thread, s *acl.Stream, memory ...*acl.Memory) (err error) {
	if s != nil {
		err = s.Close(t)
	}
	for _, m := range memory {
		if m != nil {
			err = errors.Join(err, m.Close(t))
		}
	}
	return err
}
