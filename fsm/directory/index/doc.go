// Package index is the data structure of a chunk directory: for each chunk hash and rank the index stores the set of
// holders that have the chunk. The package knows no messages and no time.
//
// A row takes 16 bytes: the hash, encrypted with a secret key, and up to four holders. Further holders are stored in
// blocks of 32 bytes. Rows are sorted by their encrypted hashes within segments of at most 4,096 slots. Each row
// stands in the slot that the encrypted hash selects, or as close behind that slot as other rows permit. Therefore a
// search stops at the first larger hash. A full segment is split in two by one copy; other segments are not touched.
//
// Example:
//
//	h := x.OpenHolder(group, instance, rank)       // a new holder, hidden from lookups
//	x.Add(h, 1)                                    // the holder has chunk 1
//	x.Add(h, 2)                                    // and chunk 2
//	x.ShowHolder(h)                                // from now on lookups find the holder
//	x.FindPrefix(rank, []uint64{1, 2, 3}, -1, nil) // returns h with 2 chunks
//	x.RetireHolder(h)                              // from now on lookups do not find the holder
//	for x.Sweep(4096) {                            // removes the rows of the holder, over several steps
//	}
//
// A caller may rely on the following:
//
//   - Without the seed it is infeasible to choose hashes that collide in one place.
//   - Each call examines at most a segment and the holders of a row. FindPrefix and Sweep do as much work as their
//     arguments request.
//   - RetireHolder hides all chunks of a holder from lookups at once, however many there are. Sweep removes them later,
//     and the holder's number is not used again before the last chunk has been removed.
//   - No group of holders has more chunks or holders than remain free for further groups ([table.Share]), and the
//     totals are bounded.
//   - The same sequence of calls returns the same results. The state is a tree of slices.
package index
