// Package backing gets memory that is really there. Linux hands out address space without memory behind it, and kills a
// process that touches more than there is: a pool that was opened would end its node, or another process, when its
// first pages are filled. So what a pool needs is counted against what there is, as far as a process can know that, and
// then taken, all of it, before the pool is open.
//
// What can be known: the kernel's MemAvailable, and for each memory cgroup above the process, of version 1 or 2, its
// limit less what is in use there and cannot be dropped. What cannot: limits outside of a container's own view, and
// memory that others take meanwhile; the count is repeated while memory is taken, and it leaves others a thirty-second
// part of what there is.
package backing
