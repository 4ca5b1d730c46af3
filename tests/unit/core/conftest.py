"""Hypothesis without a deadline: how long an example takes says nothing on a machine that others use too."""

from hypothesis import settings

settings.register_profile("runfold", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("runfold")
