// Package nontemporal copies memory around the caches.
//
// A page that is pushed is read once and written once, and its next reader is a device or another core. Ordinary
// stores would first read each line that they overwrite, and evict data from the caches that other threads need.
// Non-temporal stores write whole lines straight to memory.
//
// On amd64 with AVX2 the copy loop is our own assembly: 32-byte loads, prefetched well ahead, and 32-byte
// non-temporal stores. Go's own copy does much the same from 1 MiB on where it does not use REP MOVSB, but it
// prefetches half a kilobyte ahead, which is too short where memory answers slowly. On other machines [Copy] is Go's
// copy.
//
// Package shm uses Copy as its plane.Mover for large batches, and measures whether it is faster than Go's copy.
package nontemporal
