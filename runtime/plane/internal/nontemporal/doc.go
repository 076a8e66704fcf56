// Package nontemporal copies memory around the caches.
//
// A page that is pushed is read once and written once, and the next reader is a device or another core. Ordinary
// stores would first read each line that is overwritten, and evict data that the engine's threads need from the
// caches. Non-temporal stores write whole lines straight to memory.
//
// On amd64 with AVX2 the copy loop is our own assembly: 32-byte loads, prefetched well ahead, and 32-byte non-temporal
// stores. Go's copy does much the same from 1 MiB on unless REP MOVSB is used, but prefetches half a kilobyte ahead,
// which is too short where memory answers slowly. On machines without AVX2 [Copy] is Go's copy.
//
// Package shm uses Copy as its plane.Mover for large batches, if measurements show that Copy is faster than Go's copy.
package nontemporal
