"""purging"""
