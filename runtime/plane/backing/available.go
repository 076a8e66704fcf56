package backing

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// An Available is the amount of memory that is available to this process, and the limit from which the amount follows.
type Available struct {
	Bytes uint64
	Limit string // describes the limit that leaves the least memory
}

// AvailableMemory returns how much more memory this process can use, by the narrowest limit that the process can see:
// the host's free memory or the limit of a cgroup.
func AvailableMemory() Available { return availableUnder("/") }

// availableUnder reads the files of proc and sys below root.
func availableUnder(root string) Available {
	narrowest := Available{Bytes: math.MaxUint64, Limit: "no limit can be seen"}
	if text, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		if kib, ok := parseField(text, "MemAvailable:"); ok {
			narrowest = Available{Bytes: kib << 10, Limit: "MemAvailable of /proc/meminfo"}
		}
	}
	cgroups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return narrowest // The kernel has no cgroups.
	}
	for line := range strings.Lines(string(cgroups)) {
		// A line has the number of a hierarchy, its controllers, and our place in the hierarchy. Version 2 is
		// hierarchy 0, without controllers.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[0] == "0":
			for _, mount := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
				narrowest = narrowToCgroup(narrowest, root, mount, parts[2], version2)
			}
		case strings.Contains(","+parts[1]+",", ",memory,"):
			narrowest = narrowToCgroup(narrowest, root, "sys/fs/cgroup/memory", parts[2], version1)
		}
	}
	return narrowest
}

// cgroupFiles holds the names of files and fields that a version of cgroups uses.
type cgroupFiles struct {
	limit, used string
	droppable   []string // fields of memory.stat that count cached pages of files, which the kernel drops when memory is needed
}

var (
	version1 = cgroupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes",
		[]string{"total_inactive_file", "total_active_file"}}
	version2 = cgroupFiles{"memory.max", "memory.current", []string{"inactive_file", "active_file"}}
)

// narrowToCgroup checks a cgroup and all of its ancestors. A container may see its own cgroup as the top, under another
// name: cgroups that do not exist are skipped, and the top is checked in any case.
func narrowToCgroup(narrowest Available, root, mount, group string, f cgroupFiles) Available {
	for at := filepath.Clean("/" + group); ; at = filepath.Dir(at) {
		folder := filepath.Join(root, mount, at)
		limit, ok := readNumber(filepath.Join(folder, f.limit))
		used, known := readNumber(filepath.Join(folder, f.used))
		// Without a limit, version 1 states the largest multiple of the page size.
		if ok && known && limit < math.MaxInt64>>12<<12 {
			if stat, err := os.ReadFile(filepath.Join(folder, "memory.stat")); err == nil {
				for _, name := range f.droppable {
					n, _ := parseField(stat, name)
					used -= min(used, n)
				}
			}
			if remaining := limit - min(limit, used); remaining < narrowest.Bytes {
				narrowest = Available{Bytes: remaining, Limit: f.limit + " of cgroup " + at}
			}
		}
		if at == "/" {
			return narrowest
		}
	}
}

// readNumber reads a file that contains a number. The result is false for "max", which means that there is no limit.
func readNumber(name string) (n uint64, ok bool) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// parseField returns the number behind a name, in lines of names and numbers.
func parseField(text []byte, name string) (n uint64, ok bool) {
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == name {
			n, err := strconv.ParseUint(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
