//go:build cgo && linux

package npuengine

import (
	"errors"

	"github.com/kvferry/kvferry/runtime/acl"
)

// batches goes through ranges in order: it gives runs of those on the device to batch, each with as much of the staging
// memory, and those in memory of the host one by one to host.
func (e *Engine) batches(all []acl.Range, batch func(first int, staged, on []acl.Range) error, host func(i int, bytes []byte)) error {
	for first := 0; first < len(all); {
		if all[first].Memory.Place() == acl.OnHost {
			host(first, bytesOf(all[first]))
			first++
			continue
		}
		end, bytes := first, uint64(0)
		for end < len(all) && all[end].Memory.Place() == acl.OnDevice && (end == first || bytes+all[end].Size <= stagingBytes) {
			bytes += all[end].Size
			end++
		}
		if err := e.stage(bytes); err != nil {
			return err
		}
		staged, offset := make([]acl.Range, end-first), uint64(0)
		for i, r := range all[first:end] {
			staged[i] = e.staging.Range(offset, r.Size)
			offset += r.Size
		}
		if err := batch(first, staged, all[first:end]); err != nil {
			return err
		}
		first = end
	}
	return nil
}

// stage makes the staging memory large enough.
func (e *Engine) stage(bytes uint64) error {
	if e.stuck != nil {
		return e.stuck
	}
	if e.staging != nil && e.staging.Size() >= bytes {
		return nil
	}
	return e.own.Do(func(t *acl.Thread) (err error) {
		if err := e.endStaging(t); err != nil {
			return err
		}
		e.staging, err = t.AllocHost(max(bytes, stagingBytes))
		return err
	})
}

// move makes copies and waits for them. After an error nothing of them goes on, or the engine is stuck.
func (e *Engine) move(copies []acl.Copy) error {
	return e.own.Do(func(t *acl.Thread) (err error) {
		if e.stream == nil {
			if e.stream, err = t.NewStream(acl.StreamOptions{}); err != nil {
				return err
			}
		}
		if err = e.stream.CopyAll(t, copies); err == nil {
			err = e.stream.Synchronize(t, patience)
		}
		if err == nil {
			return nil
		}
		if refused := e.stream.Abort(t); !errors.Is(refused, acl.Unsupported) {
			err = errors.Join(err, refused)
		}
		if e.stuck = e.endStream(t); e.stuck != nil {
			err = errors.Join(err, e.stuck)
		}
		return err
	})
}

func (e *Engine) endStream(t *acl.Thread) error {
	if e.stream == nil {
		return nil
	}
	if err := e.stream.Close(t); err != nil {
		return err
	}
	e.stream, e.stuck = nil, nil
	return nil
}

func (e *Engine) endStaging(t *acl.Thread) error {
	if e.staging == nil || e.stuck != nil {
		return e.stuck
	}
	if err := e.staging.Close(t); err != nil {
		return err
	}
	e.staging = nil
	return nil
}
