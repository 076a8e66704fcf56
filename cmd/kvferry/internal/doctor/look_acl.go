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
type look struct {
	copyBytes uint64
	timeout   time.Duration // limit for one copy, after which the copy is taken to be stuck
}

// inspectNPUs loads AscendCL, uses each device in turn, in a new device context, and measures copies. If ctx is
// cancelled, the inspection ends before the next copy.
func lookAtNPUs(ctx context.Context, libraries Libraries, copyBytes uint64) NPUs {
	return look{copyBytes: copyBytes, timeout: 30 * time.Second}.at(ctx, libraries)
}

func (l look) at(ctx context.Context, libraries Libraries) NPUs {
	hccl := lookAtHCCL(libraries.HCCL) // first, because AscendCL may load HCCL too, and HCCL reads its timeouts only once
	lib, err := acl.Open(acl.Options{Library: libraries.ACL})
	if err != nil {
		return NPUs{Failed: err, HCCL: hccl}
	}
	n := NPUs{Info: lib.Info(), HCCL: hccl}
	count, err := lib.DeviceCount()
	if err != nil {
		return NPUs{Failed: errors.Join(err, lib.Close()), HCCL: hccl}
	}
	for id := range count {
		n.Devices = append(n.Devices, l.device(ctx, lib, id, count))
	}
	n.Left = lib.Close()
	return n
}

func lookAtHCCL(o comm.Options) HCCL {
	lib, err := comm.Open(o)
	if err != nil {
		return HCCL{Failed: err}
	}
	return HCCL{Info: lib.Info(), Failed: lib.Close()}
}

func (l look) device(ctx context.Context, lib *acl.Library, id, count int) Device {
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
	if d.Failed = ctx.Err(); d.Failed != nil {
		return d
	}
	c, err := lib.NewContext(acl.ContextOptions{Device: acl.DeviceID(id)})
	if err != nil {
		d.Failed = err
		return d
	}
	settled := true
	d.Failed = c.Do(func(t *acl.Thread) error {
		info, err := t.MemInfo()
		if err != nil {
			return err
		}
		d.Free, d.Total = info.Free, info.Total
		d.Copies, settled = l.measure(ctx, t)
		return nil
	})
	if settled {
		d.Failed = errors.Join(d.Failed, c.Close())
	} else {
		// Copies may be in progress, and their memory must not be freed.
		d.Failed = errors.Join(d.Failed, c.Abandon())
	}
	return d
}

// measureCopies measures copies between pinned host memory and the device, and within the device. If settled is false,
// a copy may still be in progress and the memory was left allocated.
func (l look) measure(ctx context.Context, t *acl.Thread) (speeds []Speed, settled bool) {
	host, far, near, s, err := prepare(t, l.copyBytes)
	defer func() {
		if settled {
			err = errors.Join(err, release(t, s, host, far, near))
		}
		if err != nil {
			speeds = append(speeds, Speed{Name: "copies", Failed: err})
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
		one := Speed{Name: c.name}
		one.PerSecond, one.Failed = bestOf(l.copyBytes, func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.Copy(t, c.dst.FullRange(), c.src.FullRange()); err != nil {
				return err
			}
			return s.Synchronize(t, l.timeout)
		})
		speeds = append(speeds, one)
		if one.Failed != nil {
			return speeds, one.Failed == ctx.Err()
		}
	}
	return speeds, true
}

func prepare(t *acl.Thread, bytes uint64) (host, far, near *acl.Memory, s *acl.Stream, err error) {
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

func release(t *acl.Thread, s *acl.Stream, memory ...*acl.Memory) (err error) {
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
