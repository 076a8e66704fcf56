// Package said holds sentences of the documents and of comments against the code that they speak of, where nothing else
// does. It is a test and nothing else.
package said
