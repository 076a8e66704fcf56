// Package put is what both sources of puts are made of, who pushes and who offers: the row of a put, with its command,
// its peer and the question about it that is under way, and the lines in which puts wait for the lanes of their peers.
// What is asked, and what the answer means, is for the flow that has them in its own rows.
//
// A flow may rely on this: no more questions are on a lane than its window has; an answer that is overdue closes its
// connection, so none is ever taken for another one's; and a put that is asked again goes before all that were not sent
// when it was.
package put
