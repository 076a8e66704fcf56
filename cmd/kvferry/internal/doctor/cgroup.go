package doctor

import (
	"math"
	"path"
	"strconv"
	"strings"
)

// A cgroup holds the limits of this process's control groups, such as a container's. Zero means no limit.
type cgroup struct {
	memory uint64  // bytes
	cores  float64 // seconds of processor time per second
}

const cgroupRoot = "sys/fs/cgroup"

// cgroupLimits reads the limits of both versions of control groups. The tightest limit of the process's group and all
// groups above it counts.
func (m Machine) cgroupLimits() cgroup {
	var c cgroup
	for line := range strings.Lines(m.readText("proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch controllers := "," + parts[1] + ","; {
		case parts[1] == "":
			m.readUnified(&c, cgroupRoot, parts[2])
		case strings.Contains(controllers, ",memory,"):
			m.visitParents(cgroupRoot+"/memory", parts[2], func(dir string) { c.limitMemory(m.readText(dir + "/memory.limit_in_bytes")) })
		case strings.Contains(controllers, ",cpu,"):
			m.visitParents(cgroupRoot+"/cpu", parts[2], func(dir string) {
				c.limitCores(m.readText(dir+"/cpu.cfs_quota_us"), m.readText(dir+"/cpu.cfs_period_us"))
			})
		}
	}
	return c
}

// readUnified reads the limits of version 2.
func (m Machine) readUnified(c *cgroup, root, group string) {
	m.visitParents(root, group, func(dir string) {
		c.limitMemory(m.readText(dir + "/memory.max"))
		if words := strings.Fields(m.readText(dir + "/cpu.max")); len(words) == 2 {
			c.limitCores(words[0], words[1])
		}
	})
}

// visitParents visits the folder of a group and all folders above the folder. In a container, the path may be the
// host's path, which does not exist there; the limits are then in the root folder.
func (m Machine) visitParents(root, group string, visit func(dir string)) {
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		visit(path.Join(root, at))
		if at == "/" {
			return
		}
	}
}

func (c *cgroup) limitMemory(text string) {
	// Version 1 writes "no limit" as the largest multiple of a page below 2^63.
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n >= math.MaxInt64>>16<<16 {
		return
	}
	if c.memory == 0 || n < c.memory {
		c.memory = n
	}
}

func (c *cgroup) limitCores(quota, period string) {
	q, err := strconv.ParseUint(quota, 10, 63) // "max" and -1 are no limit
	if err != nil {
		return
	}
	p, err := strconv.ParseUint(period, 10, 63)
	if err != nil || p == 0 {
		return
	}
	if cores := float64(q) / float64(p); c.cores == 0 || cores < c.cores {
		c.cores = cores
	}
}
