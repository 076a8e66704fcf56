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
func measureHostCopy(bytes uint64) (bytesPerSecond float64, copyErr error) {
	var ends [2][]byte
	for i := range ends {
		mem, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
		if err != nil {
			return 0, fmt.Errorf("map %d bytes: %w", bytes, err)
		}
		defer func() { copyErr = errors.Join(copyErr, unix.Munmap(mem)) }()
		ends[i] = mem
	}
	return measureBest(bytes, func() error { copy(ends[0], ends[1]); return nil })
}

func measureBest(bytes uint64, run func() error) (bytesPerSecond float64, err error) {
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
func (s *Section) addSpeed(name string, bytes uint64, perSecond float64) {
	if perSecond <= 0 {
		s.addProblem(name, "0 GB/s", "measure again with a larger --copy-bytes: the clock did not advance during the copy")
		return
	}
	s.addOK(name, "%.3g GB/s, measured with %s", perSecond/1e9, formatSize(bytes))
}

func (m Machine) checkHostCopy(s *Section, bytes uint64) {
	// If the buffers were larger than the free memory, the copy would not fail. The system would kill a process, and
	// maybe not this process.
	available, known := m.readKilobytes(meminfo, "MemAvailable")
	if limit := m.cgroupLimits().memory; limit != 0 && (!known || limit < available) {
		available, known = limit, true
	}
	if known && 2*bytes > available/2 {
		s.addNote("host copy", fmt.Sprintf("not measured: two buffers of %s would take more than half of the available %s", formatSize(bytes),
			formatSize(available)), "lower --copy-bytes")
		return
	}
	if perSecond, err := m.HostCopy(bytes); err != nil {
		s.addWarning("host copy", err.Error(), "free memory, or lower --copy-bytes")
	} else {
		s.addSpeed("host copy", bytes, perSecond)
	}
}
