package doctor

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// copyRounds is the number of measured copies, of which the fastest counts. An additional copy comes first and is not
// measured.
const copyRounds = 3

// measureHostCopy measures how fast one thread copies host memory. Both buffers are mapped and populated before the
// measurement.
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
		// If the clock has not moved, the speed of this copy is unknown.
		if took := time.Since(start); took > 0 {
			bytesPerSecond = max(bytesPerSecond, float64(bytes)/took.Seconds())
		}
	}
	return bytesPerSecond, nil
}

// addSpeed adds a row with a measured speed. A low speed is not a problem, because the speed that a node needs depends
// on the model. A speed of 0 means that the measurement failed.
func (s *Section) speed(name string, bytes uint64, perSecond float64) {
	if perSecond <= 0 {
		s.problem(name, "0 GB/s", "measure again with a larger --copy-bytes: no time passed on this machine's clock")
		return
	}
	s.ok(name, "%.3g GB/s, measured with %s", perSecond/1e9, size(bytes))
}

func (m Machine) hostSpeed(s *Section, bytes uint64) {
	// If the buffers were larger than the free memory, the copy would not fail. The system would kill a process, and maybe
	// not this process.
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
