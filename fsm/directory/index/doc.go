// Package index remembers who holds which chunk: for each hash and rank a set of holders. It is what a directory
// consists of, and knows neither messages nor time.
//
// A row is 16 bytes: the hash, hidden by a secret, and up to four holders; more of them lie in blocks of 32 bytes. Rows
// stand in the order of their hidden hashes, in segments of at most 4,096 slots, each row at the place that its hash
// names or as near behind it as the others leave room. So a search stops at the first hash that is larger, and a full
// segment is split in two by copying it once. No other one is touched.
//
// A caller may rely on this:
//
//   - Nobody who lacks the seed can choose hashes that meet in one place.
//   - No call does more work than one segment and the holders of one row; Prefix and Sweep do as much as they are told.
//   - What a holder had is gone for all who ask in the step that retires it, however much that is. Sweep takes it away
//     later, and the holder's number names nobody else before the last of it is gone.
//   - No group of holders has more than the others leave ([table.Share]), and there is a bound on all.
//   - The same calls give the same answers. State is a tree of slices.
package index
