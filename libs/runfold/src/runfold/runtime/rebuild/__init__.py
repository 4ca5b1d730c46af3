"""`runfold rebuild`, as a library. Where to start reading: ``plan.examine``, then ``mending.carry_out``.

* ``plan``       what is wrong with a partition, and what would have to be done
* ``mending``    doing it, so that it can be broken off at any moment and run again
* ``lost``       the records that stand in a log for what it lost
* ``refilling``  input topics whose settled offsets would be given to new inputs
* ``pen``        a claim of this command, and what is written under it
* ``world``      the ports
"""
