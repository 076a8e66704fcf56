package doctor

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// copyRounds is how often a copy is measured; the best counts, after one that is not measured.
const copyRounds = 3

// hostCopy measures one thread that copies bytes of memory, both ends mapped and touched before.
func hostCopy(bytes uint64) (bytesPerSecond float64, failed error) {
	var ends [2][]byte
	for i := range ends {
		mem, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
		if err != nil {
			return 0, fmt.Errorf("map %d bytes: %w", bytes, err)
		}
		defer func() { failed = errors.Join(failed, unix.Munmap(mem)) }()
		ends[i] = mem
	}
	return bestOf(bytes, func() error { copy(ends[0], ends[1]); return nil })
}

func bestOf(bytes uint64, run func() error) (bytesPerSecond float64, failed error) {
	if err := run(); err != nil {
		return 0, err
	}
	for range copyRounds {
		start := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		// A clock that has not moved says nothing of the speed.
		if took := time.Since(start); took > 0 {
			bytesPerSecond = max(bytesPerSecond, float64(bytes)/took.Seconds())
		}
	}
	return bytesPerSecond, nil
}

// speed adds what was measured. How fast is fast enough depends on the model and is nobody's to say here; but
// nothing at all is wrong.
func (s *Section) speed(name string, bytes uint64, perSecond float64) {
	if perSecond <= 0 {
		s.problem(name, "0 GB/s", "measure again with a larger --copy-bytes: no time passed on this machine's clock")
		return
	}
	s.ok(name, "%.3g GB/s, measured with %s", perSecond/1e9, size(bytes))
}

func (m Machine) hostSpeed(s *Section, bytes uint64) {
	// Touching more than there is would not fail: the system would end a process, and maybe another one.
	available, known := m.kilobytes(meminfo, "MemAvailable")
	if limit := m.container().memory; limit != 0 && (!known || limit < available) {
		available, known = limit, true
	}
	if known && 2*bytes > available/2 {
		s.note("host copy", fmt.Sprintf("not measured: two buffers of %s would take more than half of %s", size(bytes),
			size(available)), "lower --copy-bytes")
		return
	}
	if perSecond, err := m.HostCopy(bytes); err != nil {
		s.warn("host copy", err.Error(), "free memory, or lower --copy-bytes")
	} else {
		s.speed("host copy", bytes, perSecond)
	}
}
