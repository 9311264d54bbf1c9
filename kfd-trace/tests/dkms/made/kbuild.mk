# A kernel's headers, as far as a driver's build sees them: one object is made when asked for, and the whole driver is refused.
# As there, the Makefile in the folder of M= is read with KERNELRELEASE set.
CC = gcc
KERNELRELEASE = 5.10.0-46-amd64
modules:
	@echo 'the whole driver would be built'; exit 1
include $(M)/Makefile
%.o:
	$(CC) $(ccflags-y) $(KCFLAGS) -c -o $(M)/$@ $(M)/$*.c
