"""The process that sends load: reads jobs from standard input and answers on standard output."""

from benchmarks.load.client import drive
from benchmarks.load.records import Job
from benchmarks.sender import carry_out

if __name__ == "__main__":
    carry_out(Job, drive)
