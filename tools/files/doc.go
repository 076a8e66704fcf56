// Package files has a test that the Makefile and the scripts remove and overwrite only files that they have created.
package files
