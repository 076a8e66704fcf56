package backing

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Room is how much memory can be had, and what says so.
type Room struct {
	Bytes uint64
	Limit string // the file with the narrowest limit
}

// Available returns the narrowest of the limits that this process can see.
func Available() Room { return availableBelow("/") }

// availableBelow reads the files of proc and sys below root.
func availableBelow(root string) Room {
	least := Room{Bytes: math.MaxUint64, Limit: "no limit can be seen"}
	if text, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		if kib, ok := field(text, "MemAvailable:"); ok {
			least = Room{Bytes: kib << 10, Limit: "MemAvailable of /proc/meminfo"}
		}
	}
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least // A kernel without cgroups.
	}
	for line := range strings.Lines(string(own)) {
		// A hierarchy's number, its controllers, and our place in it. Version 2 is number 0, without controllers.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[0] == "0":
			for _, mount := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
				least = narrow(least, root, mount, parts[2], version2)
			}
		case strings.Contains(","+parts[1]+",", ",memory,"):
			least = narrow(least, root, "sys/fs/cgroup/memory", parts[2], version1)
		}
	}
	return least
}

// files are what a version of cgroups calls its numbers.
type files struct {
	limit, used string
	droppable   []string // fields of memory.stat: pages of files that can be read again
}

var (
	version1 = files{"memory.limit_in_bytes", "memory.usage_in_bytes",
		[]string{"total_inactive_file", "total_active_file"}}
	version2 = files{"memory.max", "memory.current", []string{"inactive_file", "active_file"}}
)

// narrow looks at a group and all above it. A container may see its own group as the top, under another name: what is
// not there is passed over, and the top is looked at in any case.
func narrow(least Room, root, mount, group string, f files) Room {
	for at := filepath.Clean("/" + group); ; at = filepath.Dir(at) {
		folder := filepath.Join(root, mount, at)
		limit, ok := number(filepath.Join(folder, f.limit))
		used, known := number(filepath.Join(folder, f.used))
		if ok && known && limit < math.MaxInt64>>12<<12 { // Version 1's word for none.
			if stat, err := os.ReadFile(filepath.Join(folder, "memory.stat")); err == nil {
				for _, name := range f.droppable {
					n, _ := field(stat, name)
					used -= min(used, n)
				}
			}
			if left := limit - min(limit, used); left < least.Bytes {
				least = Room{Bytes: left, Limit: f.limit + " of cgroup " + at}
			}
		}
		if at == "/" {
			return least
		}
	}
}

// number reads a file that holds one; "max", which is none, is not.
func number(name string) (n uint64, ok bool) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// field finds the number behind a name in lines of names and numbers.
func field(text []byte, name string) (n uint64, ok bool) {
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) >= 2 && words[0] == name {
			n, err := strconv.ParseUint(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
