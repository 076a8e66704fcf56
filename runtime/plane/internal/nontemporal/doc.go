// Package nontemporal copies memory around the caches.
//
// A page that is pushed is read once and written once, and its next reader is a device or another core.
// Ordinary stores would first read the line they overwrite and push somebody's working set out of the
// caches. Non-temporal stores write whole lines straight to memory.
//
// On amd64 with AVX2 the kernel is ours: 32-byte loads, prefetched well ahead, and 32-byte non-temporal
// stores. Go's own copy does much the same from 1 MiB on where it does not use REP MOVSB, but
// prefetches half a kilobyte ahead, which is too short where memory answers slowly. Elsewhere [Copy] is
// Go's copy.
package nontemporal
